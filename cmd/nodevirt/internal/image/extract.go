package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// maxEntries bounds how many files of /disk are written.
const maxEntries = 1000

// Names with which a layer removes files of the layers below; see the OCI image
// specification, layer.md.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// extraction writes the files that an image has in /disk into a folder. It merges the layers from
// the topmost one down, and does not write files that a higher layer hides.
type extraction struct {
	root    *os.Root
	maxSize int64           // of a file, in bytes
	entries int             // so far
	gone    map[string]bool // paths that are hidden with all below them
	emptied map[string]bool // paths below which all is hidden
}

// extract writes the files that an image has in /disk into root. A device or another special file
// becomes a pipe: the checks see that it is special. extract skips other parts of the image.
// maxSize is the largest allowed disk, in bytes.
func extract(ctx context.Context, img v1.Image, root *os.Root, maxSize int64, bar io.Writer) error {
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("read the layers: %w", err)
	}
	e := &extraction{root: root, maxSize: maxSize, gone: map[string]bool{}, emptied: map[string]bool{}}
	for _, l := range slices.Backward(layers) {
		content, err := l.Uncompressed()
		if err != nil {
			return fmt.Errorf("read the layers: %w", err)
		}
		err = e.layer(tar.NewReader(io.TeeReader(cancelable{ctx, content}, bar)))
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return nil
}

// layer writes the files of a layer that no higher layer hides, and records which files
// it hides itself.
func (e *extraction) layer(archive *tar.Reader) error {
	var gone, emptied []string
	for e.entries < maxEntries {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the layers: %w", err)
		}
		name := inImage(h.Name)
		dir, base := path.Dir(name), path.Base(name)
		switch {
		case base == opaque:
			emptied = append(emptied, dir)
			continue
		case strings.HasPrefix(base, whiteout):
			gone = append(gone, path.Join(dir, strings.TrimPrefix(base, whiteout)))
			continue
		case name != "disk" && !strings.HasPrefix(name, "disk/"), e.hidden(name):
			continue
		}
		e.entries++
		if err := e.place(name, h, archive); err != nil {
			return fmt.Errorf("keep %q: %w", name, err)
		}
		if h.Typeflag != tar.TypeDir {
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		e.gone[name] = true
	}
	for _, name := range emptied {
		e.emptied[name] = true
	}
	return nil
}

// hidden reports whether a higher layer hides a path.
func (e *extraction) hidden(name string) bool {
	for at := name; ; at = path.Dir(at) {
		if e.gone[at] || e.emptied[at] && at != name {
			return true
		}
		if at == "." {
			return false
		}
	}
}

// inImage returns a path relative to the image's root, as os.Root requires.
func inImage(name string) string {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" {
		return "."
	}
	return clean
}

func (e *extraction) place(name string, h *tar.Header, content io.Reader) error {
	if dir := path.Dir(name); dir != "." {
		if err := e.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeDir {
		return e.root.MkdirAll(name, 0o700)
	}
	if err := e.root.RemoveAll(name); err != nil { // an earlier entry of the same layer
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return e.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return e.root.Link(inImage(h.Linkname), name)
	case tar.TypeReg:
		if err := imageunpack.CheckSize("file", h.Size, e.maxSize); err != nil {
			return err
		}
		f, err := e.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(sparse(f, content), f.Close())
	}
	dir, err := e.root.OpenFile(path.Dir(name), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), path.Base(name), 0o600)
}
