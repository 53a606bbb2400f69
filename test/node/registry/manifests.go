package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// manifests wraps the library's handler, which keeps manifests in memory alone: it writes down each
// one that was taken, and offers them all again at the next start.
type manifests struct {
	dir  string
	next http.Handler
}

// stored is a manifest as it was pushed.
type stored struct {
	Path string // of the request
	Type string
	Body []byte
}

func newManifests(dir string, next http.Handler) (*manifests, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	m := &manifests{dir, next}
	return m, m.replay()
}

func (m *manifests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
		m.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := stored{r.URL.Path, r.Header.Get("Content-Type"), body}
	answer := m.put(s)
	if answer.Code < http.StatusBadRequest {
		if err := m.keep(s); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // a client that went away sees nothing either way
}

// put offers a manifest to the library's handler.
func (m *manifests) put(s stored) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPut, s.Path, bytes.NewReader(s.Body))
	r.Header.Set("Content-Type", s.Type)
	w := httptest.NewRecorder()
	m.next.ServeHTTP(w, r)
	return w
}

func (m *manifests) keep(s stored) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("keep manifest %s: %w", s.Path, err)
	}
	path := filepath.Join(m.dir, url.PathEscape(s.Path))
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("keep manifest %s: %w", s.Path, err)
	}
	return nil
}

// replay offers all that was kept. The handler takes an index only after its images, so what is
// refused is offered again for as long as others are taken.
func (m *manifests) replay() error {
	rest, err := m.load()
	for err == nil && len(rest) > 0 {
		var refused []stored
		for _, s := range rest {
			if m.put(s).Code >= http.StatusBadRequest {
				refused = append(refused, s)
			}
		}
		if len(refused) == len(rest) {
			return fmt.Errorf("load manifest %s: its parts are gone; remove %s", rest[0].Path, m.dir)
		}
		rest = refused
	}
	return err
}

func (m *manifests) load() ([]stored, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("load manifests: %w", err)
	}
	var all []stored
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(m.dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("load manifest: %w", err)
		}
		var s stored
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("load manifest %s; remove the file: %w", e.Name(), err)
		}
		all = append(all, s)
	}
	return all, nil
}
