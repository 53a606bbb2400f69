// Package share connects `nodevirt disk` with the shim, by HTTP and JSON over a
// unix socket that only root may open.
//
// It owns the client, the server, and how errors are encoded. It leaves exports and
// imports themselves to package disk.
package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/disk"
)

// Export is an export without the credentials to use it.
type Export struct {
	Name      string    `json:"name"`
	Image     string    `json:"image"`
	Path      string    `json:"path"`
	Size      int64     `json:"size"`
	Portal    string    `json:"portal"`
	Target    string    `json:"target"`
	CreatedAt time.Time `json:"createdAt"`
	// Initiators are those that are logged in. Served is false while tgtd does not run.
	Initiators []string `json:"initiators"`
	Served     bool     `json:"served"`
}

// Import is an import without its password.
type Import struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Portal    string `json:"portal"`
	Target    string `json:"target"`
	Size      int64  `json:"size,omitempty"`
}

// List holds a node's exports and imports.
type List struct {
	Exports []Export `json:"exports"`
	Imports []Import `json:"imports"`
}

// maxBody bounds a request, in bytes.
const maxBody = 64 << 10

// Handler returns the handler that serves a node's exports and imports.
func Handler(exports *disk.Exports, imports *disk.Imports) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/disks", answer(func(r *http.Request) (any, error) { return list(r.Context(), exports, imports) }))
	mux.HandleFunc("POST /v1/exports", answer(func(r *http.Request) (any, error) {
		var q disk.ExportRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		return exports.Add(r.Context(), q)
	}))
	mux.HandleFunc("DELETE /v1/exports/{name}", answer(func(r *http.Request) (any, error) {
		return struct{}{}, exports.Remove(r.Context(), r.PathValue("name"), r.URL.Query().Get("force") == "true")
	}))
	mux.HandleFunc("PUT /v1/imports/{name}", answer(func(r *http.Request) (any, error) {
		var i disk.Import
		if err := decode(r, &i); err != nil {
			return nil, err
		}
		i.Name = r.PathValue("name")
		return struct{}{}, imports.Add(i)
	}))
	mux.HandleFunc("DELETE /v1/imports/{name}", answer(func(r *http.Request) (any, error) {
		return struct{}{}, imports.Remove(r.PathValue("name"))
	}))
	return mux
}

func list(ctx context.Context, exports *disk.Exports, imports *disk.Imports) (List, error) {
	exported, err := exports.List()
	if err != nil {
		return List{}, err
	}
	imported, err := imports.List()
	if err != nil {
		return List{}, err
	}
	l := List{Exports: []Export{}, Imports: []Import{}}
	for _, e := range exported {
		users, served, err := exports.Users(ctx, e)
		if err != nil && !errors.Is(err, iscsi.ErrUnavailable) {
			return List{}, err
		}
		l.Exports = append(l.Exports, Export{
			Name: e.Name, Image: e.Disk.Image, Path: e.Disk.Path, Size: e.Disk.VirtualSize, CreatedAt: e.CreatedAt,
			Portal: exports.Portal(), Target: exports.Target(e), Initiators: users, Served: served,
		})
	}
	for _, i := range imported {
		l.Imports = append(l.Imports, Import{
			Name: i.Name, Namespace: i.Namespace, Portal: i.Portal, Target: i.Target, Size: i.Size,
		})
	}
	return l, nil
}

// failure is an error on the wire.
type failure struct {
	Error string `json:"error"`
}

// errBody is returned for a request that cannot be decoded.
var errBody = errors.New("not a request of nodevirt")

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	return nil
}

func answer(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := do(r)
		code := http.StatusOK
		if err != nil {
			value, code = failure{err.Error()}, codeOf(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value) // fails only if the client is gone
	}
}

func codeOf(err error) int {
	for _, k := range []struct {
		kind error
		code int
	}{
		{disk.ErrUnknown, http.StatusNotFound},
		{disk.ErrExists, http.StatusConflict}, {iscsi.ErrBusy, http.StatusConflict},
		{disk.ErrName, http.StatusBadRequest}, {disk.ErrBad, http.StatusBadRequest}, {errBody, http.StatusBadRequest},
		{imageunpack.ErrNoDisk, http.StatusBadRequest}, {imageunpack.ErrUnusable, http.StatusBadRequest},
		{iscsi.ErrUnavailable, http.StatusServiceUnavailable},
	} {
		if errors.Is(err, k.kind) {
			return k.code
		}
	}
	return http.StatusInternalServerError
}

// Serve serves h on a unix socket, which only root may open, until ctx ends.
func Serve(ctx context.Context, path string, h http.Handler) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil { // a killed shim left it; this process holds the lock of the CRI socket
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("serve disks: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve disks: %w", err)
	}
	return nil
}
