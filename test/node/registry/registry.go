// Package registry is a development node's image registry. It owns a folder and keeps in it what
// is pushed, so that images are there again after a restart. It has no access control: it is for
// loopback and for a socket that only root reaches.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"golang.org/x/sync/errgroup"
)

// Handler serves the registry that lives in dir, which it makes where it is missing.
func Handler(dir string) (http.Handler, error) {
	blobs, err := newBlobs(filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, err
	}
	inner := registry.New(registry.WithBlobHandler(blobs), registry.Logger(log.New(io.Discard, "", 0)))
	return newManifests(filepath.Join(dir, "manifests"), inner)
}

// Serve serves the registry in dir on listeners until ctx is done.
func Serve(ctx context.Context, dir string, listeners ...net.Listener) error {
	h, err := Handler(dir)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve images on %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

// makeDir is for folders that only root may look into.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the registry's folder: %w", err)
	}
	return nil
}
