package aggregated

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
)

// openapi is the OpenAPI document of a server's groups. The API server reads it every
// few minutes, and parses it if its tag has changed.
type openapi struct{ paths map[string]any }

func (o *openapi) add(paths map[string]any) {
	if o.paths == nil {
		o.paths = map[string]any{}
	}
	maps.Copy(o.paths, paths)
}

// ServeHTTP implements http.Handler.
func (o *openapi) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	paths := o.paths
	if paths == nil {
		paths = map[string]any{}
	}
	text, err := json.Marshal(map[string]any{
		"swagger": "2.0", "info": map[string]string{"title": "nodevirt", "version": "v1"}, "paths": paths,
	})
	if err != nil {
		Refuse(w, err)
		return
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	w.Header().Set("Etag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // a client that has gone needs no answer
}
