package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"
)

const typeYAML = "application/yaml"

// serveManifests returns a handler that serves the objects from which another cluster makes the VM, with
// URLs of its volumes.
func serveManifests(objects []json.RawMessage) handler {
	return func(w http.ResponseWriter, r *http.Request) error { return reply(w, r, objects) }
}

// serveSecret serves a Secret with the token's header, as CDI reads it.
func (s *Server) serveSecret(w http.ResponseWriter, r *http.Request) error {
	token, err := s.token()
	if err != nil {
		return err
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": SecretName(s.config.Name)},
		"stringData": map[string]any{"token": ExportHeader + ":" + string(token)},
	})
	if err != nil {
		return fmt.Errorf("encode the Secret: %w", err)
	}
	return reply(w, r, []json.RawMessage{secret})
}

// SecretName returns the name of the Secret with the token's header, which the manifests of an
// export name.
func SecretName(export string) string { return "header-secret-" + export }

// reply serves objects: a List in JSON, or documents in YAML if the client asks for that.
func reply(w http.ResponseWriter, r *http.Request, objects []json.RawMessage) error {
	if r.Header.Get("Accept") != typeYAML {
		text, err := json.MarshalIndent(map[string]any{
			"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": objects,
		}, "", "    ")
		if err != nil {
			return fmt.Errorf("encode manifests: %w", err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, err = w.Write(text)
		return err
	}
	var text bytes.Buffer
	for _, o := range objects {
		document, err := yaml.JSONToYAML(o)
		if err != nil {
			return fmt.Errorf("encode manifests: %w", err)
		}
		text.Write(document)
		text.WriteString("---\n")
	}
	w.Header().Set("Content-Type", typeYAML)
	_, err := w.Write(text.Bytes())
	return err
}
