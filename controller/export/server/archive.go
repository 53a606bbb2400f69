package server

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"syscall"
)

const (
	// maxDepth bounds folders in folders: each holds a descriptor.
	maxDepth = 256
	// batch is how many names of a folder are read at once.
	batch = 256
	// lost is what mkfs makes in a new file system, and only root reads.
	lost = "lost+found"
)

// serveArchive serves a folder as a compressed archive, with its symbolic links as they are.
func serveArchive(v *volume, w http.ResponseWriter, r *http.Request) error {
	return compressed(w, r, func(to io.Writer) error {
		a := archive{root: v.root, to: tar.NewWriter(to)}
		if err := a.folder(".", 0); err != nil {
			return err
		}
		return a.to.Close()
	})
}

type archive struct {
	root *os.Root
	to   *tar.Writer
}

// folder adds a folder and what is in it.
func (a archive) folder(name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("archive %s: more than %d folders in each other", name, maxDepth)
	}
	f, err := openFile(a.root, name)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	if err := a.header(name, info, ""); err != nil {
		return err
	}
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if depth == 0 && e.Name() == lost {
				continue
			}
			if err := a.entry(path.Join(name, e.Name()), e.Type(), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
}

// entry adds what a folder has. It leaves out sockets, pipes and devices.
func (a archive) entry(name string, mode fs.FileMode, depth int) error {
	switch mode.Type() {
	case fs.ModeDir:
		return a.folder(name, depth+1)
	case fs.ModeSymlink:
		info, err := a.root.Lstat(name)
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
		target, err := a.root.Readlink(name)
		if err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
		return a.header(name, info, target)
	case 0:
		return a.file(name)
	}
	return nil
}

func (a archive) file(name string) error {
	f, err := a.root.OpenFile(name, readOnly|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errKind
	}
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	if err := a.header(name, info, ""); err != nil {
		return err
	}
	if _, err := io.CopyN(a.to, f, info.Size()); err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	return nil
}

func (a archive) header(name string, info fs.FileInfo, target string) error {
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	h.Name, h.Uname, h.Gname = "./", "", "" // names of users are the guest's, and not here
	if name != "." {
		h.Name += name // as tar of the folder names it, which clients ask for
		if info.IsDir() {
			h.Name += "/"
		}
	}
	if err := a.to.WriteHeader(h); err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	return nil
}
