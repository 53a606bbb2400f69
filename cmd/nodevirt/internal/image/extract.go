package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
)

// maxEntries bounds how many files of /disk are written.
const maxEntries = 1000

// extract writes what an image has in /disk into root, layers merged. What is
// no file, folder or link becomes a pipe: the checks see that it is special.
// Other parts of the image are read over.
func extract(ctx context.Context, img v1.Image, root *os.Root, bar io.Writer) (err error) {
	all := mutate.Extract(img)
	defer func() { err = errors.Join(err, all.Close()) }()
	archive := tar.NewReader(io.TeeReader(cancelable{ctx, all}, bar))
	for n := 0; n < maxEntries; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the layers: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name != "disk" && !strings.HasPrefix(name, "disk/") {
			continue
		}
		n++
		if err := place(root, name, h, archive); err != nil {
			return fmt.Errorf("keep %q: %w", name, err)
		}
	}
	return nil
}

func place(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(sparse(f, content), f.Close())
	}
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), path.Base(name), 0o600)
}

// sparse copies with holes for zeros: a small layer can blow up to a huge file of them.
func sparse(f *os.File, r io.Reader) error {
	const block = 64 << 10
	buf, zeros, size := make([]byte, block), make([]byte, block), int64(0)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := f.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return f.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
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
