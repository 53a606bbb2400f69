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

// Usage is what the bases take.
type Usage struct {
	// Bases is how many there are, Bytes what they take. Clones share that with them,
	// so that removing a base frees what no machine's file has in common with it.
	Bases int
	Bytes int64
}

// Usage tells what the bases take.
func (e *Expander) Usage() Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Usage{Bases: len(e.bases), Bytes: e.total()}
}

// total is what all bases take, or may take, in bytes. The caller holds e.mu.
func (e *Expander) total() (bytes int64) {
	for _, b := range e.bases {
		bytes += b.size
	}
	return bytes
}

// Hold says that a machine's file, which an Expander before this one made, may be a
// clone of a base. A base is held as long as one of its files is there.
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

// Collect removes the bases of images that are gone. Clones of them stay good.
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

// forget removes an image's bases, those aside of which a clone is being made: these
// go the next time.
func (e *Expander) forget(image string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, b := range e.bases {
		if of, ok := imageOf(name); ok && of == image && b.busy == 0 {
			e.delete(b)
			e.opts.Logger.Info("an expanded disk is removed: its image is gone", "image", image)
		}
	}
}

// evict makes room for bytes below the limit, and tells whether there is: bases that
// no machine's file is a clone of go, first those that were not used for the longest
// time. The caller holds e.mu.
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
		e.opts.Logger.Info("an expanded disk is removed: it is over disks.cache_limit", "file", b.name)
	}
	return true
}

// isHeld tells whether a machine's file is a clone of the base.
func (b *base) isHeld() bool {
	for path := range b.held {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
		delete(b.held, path)
	}
	return false
}

// imageOf is the image that a file's name tells of, if it is a base's.
func imageOf(name string) (string, bool) {
	text, ok := strings.CutSuffix(name, suffix)
	algorithm, rest, ok2 := strings.Cut(text, "-")
	encoded, _, ok3 := strings.Cut(rest, "-")
	image := algorithm + ":" + encoded
	return image, ok && ok2 && ok3 && digest.Digest(image).Validate() == nil
}

// taken is what a file takes, in bytes.
func taken(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
