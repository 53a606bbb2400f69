package expand

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
)

// Usage is the disk space of the bases.
type Usage struct {
	// Bases is the number of bases, Bytes the disk space that they take. Clones share it: removing
	// a base frees only the part that no VM's file shares.
	Bases int
	Bytes int64
}

// Usage returns the disk space of the bases.
func (e *Expander) Usage() Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Usage{Bases: len(e.bases), Bytes: e.total()}
}

// total returns how many bytes all bases take or may take. The caller holds e.mu.
func (e *Expander) total() (bytes int64) {
	for _, b := range e.bases {
		bytes += b.size
	}
	return bytes
}

// Hold reports a VM's file of an earlier Expander, which may be a clone of a base. A base is held as
// long as one of its clones exists.
func (e *Expander) Hold(k Key, path string) {
	name, err := k.BaseName()
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.bases[name]; b != nil {
		b.held[path] = struct{}{}
	}
}

// Collect removes the bases of images that no longer exist. Clones of them stay valid.
func (e *Expander) Collect(present func(image string) (bool, error)) error {
	images := map[string]bool{}
	e.mu.Lock()
	for name := range e.bases {
		if image, ok := imageOf(name); ok {
			images[image] = true
		}
	}
	e.mu.Unlock()
	var errs []error
	for image := range images {
		there, err := present(image)
		if err != nil {
			errs = append(errs, err)
		} else if !there {
			e.forget(image)
		}
	}
	return errors.Join(errs...)
}

// forget removes an image's bases. It leaves those that are being cloned to the next call.
func (e *Expander) forget(image string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, b := range e.bases {
		if of, ok := imageOf(name); ok && of == image && b.busy == 0 {
			e.delete(b)
			e.opts.Logger.Info("removing an expanded disk: its image was removed", "image", image)
		}
	}
}

// evict makes room for bytes below the limit and reports whether it could. It removes bases
// without clones, the least recently used first. The caller holds e.mu.
func (e *Expander) evict(bytes int64) bool {
	over := e.total() + bytes - e.opts.Limit
	var idle []*base
	var freed int64
	for _, b := range e.bases {
		if b.busy == 0 && !b.isHeld() {
			idle, freed = append(idle, b), freed+b.size
		}
	}
	if freed < over {
		return false
	}
	slices.SortFunc(idle, func(a, b *base) int { return a.used.Compare(b.used) })
	for _, b := range idle {
		if over <= 0 {
			break
		}
		over -= b.size
		e.delete(b)
		e.opts.Logger.Info("removing an expanded disk: disks.cache_limit is exceeded", "file", b.name)
	}
	return true
}

// isHeld reports whether a VM's file is a clone of the base.
func (b *base) isHeld() bool {
	for path := range b.held {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
		delete(b.held, path)
	}
	return false
}

// imageOf returns the image in the name of a base's file.
func imageOf(name string) (string, bool) {
	text, ok := strings.CutSuffix(name, suffix)
	algorithm, rest, ok2 := strings.Cut(text, "-")
	encoded, _, ok3 := strings.Cut(rest, "-")
	image := algorithm + ":" + encoded
	return image, ok && ok2 && ok3 && digest.Digest(image).Validate() == nil
}

// taken returns how many bytes a file takes on its file system.
func taken(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
