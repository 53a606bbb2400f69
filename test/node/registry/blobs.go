package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blobs keeps blobs in files named by their digests. The library's own handler hashes a file
// again whenever it is asked for its size, which takes seconds for a disk.
type blobs struct{ dir string }

var _ interface {
	registry.BlobHandler
	registry.BlobStatHandler
	registry.BlobPutHandler
} = blobs{}

func newBlobs(dir string) (blobs, error) { return blobs{dir}, makeDir(dir) }

// path is safe: a Hash holds an algorithm's name and hexadecimal digits.
func (b blobs) path(h v1.Hash) string { return filepath.Join(b.dir, h.Algorithm+"-"+h.Hex) }

func (b blobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(b.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, registry.ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("find blob: %w", err)
	}
	return info.Size(), nil
}

func (b blobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, err := os.Open(b.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, registry.ErrNotFound
	}
	return f, err
}

// Put keeps a blob; the caller's reader checks the digest and fails where it differs.
func (b blobs) Put(_ context.Context, _ string, h v1.Hash, r io.ReadCloser) error {
	defer r.Close()
	f, err := os.CreateTemp(b.dir, "upload-*")
	if err != nil {
		return fmt.Errorf("keep blob %s: %w", h, err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("keep blob %s: %w", h, err), os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), b.path(h)); err != nil {
		return fmt.Errorf("keep blob %s: %w", h, err)
	}
	return nil
}
