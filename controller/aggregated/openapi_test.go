package aggregated

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"gotest.tools/v3/assert"
)

// TestOpenAPI: the document has the paths of all groups, and is sent once.
func TestOpenAPI(t *testing.T) {
	var o openapi
	ask := func(tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi/v2", nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return w
	}
	empty := ask("").Header().Get("Etag")
	o.add(map[string]any{"/apis/a/v1/": 1})
	o.add(map[string]any{"/apis/b/v1/": 2})
	full := ask(empty)
	var document struct {
		Swagger string
		Paths   map[string]int
	}
	assert.NilError(t, json.Unmarshal(full.Body.Bytes(), &document))
	assert.DeepEqual(t, document.Paths, map[string]int{"/apis/a/v1/": 1, "/apis/b/v1/": 2})
	assert.Equal(t, document.Swagger, "2.0")
	assert.Equal(t, ask(full.Header().Get("Etag")).Code, http.StatusNotModified)
}
