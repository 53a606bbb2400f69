package registrydisk

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// folder is the folder of the disk in the archive.
const folder = "disk/"

// Plain returns an uncompressed layer of an archive. It calls open each time that
// the layer is read, and once for the digest.
func Plain(open func() io.ReadCloser) (v1.Layer, error) {
	r := open()
	hash, size, err := v1.SHA256(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return &plain{open: open, hash: hash, size: size}, nil
}

// plain is an uncompressed layer.
type plain struct {
	open func() io.ReadCloser
	hash v1.Hash
	size int64
}

func (l *plain) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l *plain) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l *plain) Compressed() (io.ReadCloser, error)   { return l.open(), nil }
func (l *plain) Uncompressed() (io.ReadCloser, error) { return l.open(), nil }
func (l *plain) Size() (int64, error)                 { return l.size, nil }
func (l *plain) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }

// layer returns the disk's layer. Progress gets the bytes of the first read.
func (d Disk) layer(ctx context.Context, o Options) (mutate.Addendum, error) {
	progress := o.Progress
	open := func() io.ReadCloser {
		w := progress
		progress = nil
		return d.archive(ctx, w)
	}
	if o.Lazy {
		return Lazy(open)
	}
	l, err := Plain(open)
	return mutate.Addendum{Layer: l}, err
}

// archive returns a reader of the archive, which is written while it is read.
func (d Disk) archive(ctx context.Context, progress io.Writer) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(d.write(ctx, w, progress)) }() // the error reaches the reader
	return r
}

func (d Disk) write(ctx context.Context, w io.Writer, progress io.Writer) error {
	f, info, err := open(d.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Size() != d.Size {
		return fmt.Errorf("disk %s has changed since it was checked: is a VM using it?", d.Path)
	}
	t := tar.NewWriter(w)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: d.Name(), Mode: 0o444, Size: d.Size},
	} {
		h.ModTime = time.Unix(0, 0)
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("archive disk %s: %w", d.Path, err)
		}
	}
	var content io.Reader = &io.LimitedReader{R: f, N: d.Size}
	if progress != nil {
		content = io.TeeReader(content, progress)
	}
	if _, err := io.CopyBuffer(t, cancelable{ctx, content}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("archive disk %s: %w", d.Path, err)
	}
	return t.Close()
}

// cancelable ends a copy when ctx ends.
type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// allocated returns how many bytes a file takes on its file system.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
