package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// maxPasses bounds how often an image is read. Each pass finds the targets of links that the pass before has found.
const maxPasses = 5

// extraction writes the files that an image has in /disk, and those to which links there lead, into a folder. It merges the
// layers from the topmost one down, and does not write files that a higher layer hides.
type extraction struct {
	kept    []string    // paths that are written with all below them
	linked  []string    // targets of links that are not among them
	hard    [][2]string // names and targets of hard links whose target is in a lower layer
	root    *os.Root
	maxSize int64           // of a file, in bytes
	entries int             // so far
	gone    map[string]bool // paths that are hidden with all below them
	emptied map[string]bool // paths below which all is hidden
}

// extract writes the files that an image has in /disk into root, and those to which links there lead, inside the image. A
// device or another special file becomes a pipe: the checks see that it is special. extract skips other parts of the image.
// maxSize is the largest allowed disk, in bytes.
func extract(ctx context.Context, img v1.Image, root *os.Root, maxSize int64, bar io.Writer) error {
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("read the layers: %w", err)
	}
	kept := []string{"disk"}
	for range maxPasses {
		e := &extraction{root: root, maxSize: maxSize, kept: kept, gone: map[string]bool{}, emptied: map[string]bool{}}
		if err := e.layers(ctx, layers, bar); err != nil {
			return err
		}
		if len(e.linked) == 0 {
			break
		}
		kept, bar = append(kept, e.linked...), io.Discard // the bar is for one pass
		if err := clear(root); err != nil {
			return err
		}
	}
	return nil
}

// clear removes all that a pass has written.
func clear(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range entries {
		err = errors.Join(err, root.RemoveAll(entry.Name()))
	}
	return err
}

func (e *extraction) layers(ctx context.Context, layers []v1.Layer, bar io.Writer) error {
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
	for _, link := range e.hard {
		err := e.root.Link(link[1], link[0])
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a link without a target is no file
			return fmt.Errorf("keep %q: %w", link[0], err)
		}
	}
	return nil
}

// keeps reports whether an entry is written: one of the kept paths or below it, or a link on the way to one.
func (e *extraction) keeps(name string, kind byte) bool {
	return slices.ContainsFunc(e.kept, func(kept string) bool {
		return within(name, kept) || kind == tar.TypeSymlink && within(kept, name)
	})
}

// within reports whether a path is another one or below it.
func within(name, dir string) bool {
	return name == dir || dir == "." || strings.HasPrefix(name, dir+"/")
}

// follow has the next pass keep the target of a link, if this one does not. A node follows no absolute symbolic links.
func (e *extraction) follow(name string, h *tar.Header) {
	var targets []string
	switch {
	case h.Typeflag == tar.TypeLink:
		targets = []string{inImage(h.Linkname)}
	case h.Typeflag == tar.TypeSymlink && !path.IsAbs(h.Linkname):
		target := inImage(path.Join(path.Dir(name), h.Linkname)) //nolint:gosec // inImage keeps it inside, and it only selects entries
		targets = []string{target}
		for _, kept := range e.kept { // those that the link is on the way to
			if kept != name && within(kept, name) {
				targets = append(targets, path.Join(target, strings.TrimPrefix(kept, name+"/")))
			}
		}
	}
	for _, target := range targets {
		known := slices.ContainsFunc(slices.Concat(e.kept, e.linked), func(kept string) bool { return within(target, kept) })
		if target != "." && !known && len(e.linked) < maxEntries {
			e.linked = append(e.linked, target)
		}
	}
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
		case !e.keeps(name, h.Typeflag), e.hidden(name):
			continue
		}
		e.entries++
		e.follow(name, h)
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
		err := e.root.Link(inImage(h.Linkname), name)
		if errors.Is(err, fs.ErrNotExist) {
			e.hard = append(e.hard, [2]string{name, inImage(h.Linkname)})
			err = nil
		}
		return err
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
