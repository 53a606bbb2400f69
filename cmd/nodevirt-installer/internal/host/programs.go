package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

const (
	// programs is the folder of programs below Dir.
	programs = "bin"
	// restartMark is a file that exists until the shim runs the placed programs.
	restartMark = "restart-shim"
	suffix      = ".new"
)

// Place puts the programs of the image on the node, and restarts a shim that runs others. It can run
// again after it was killed.
func (h *Host) Place(ctx context.Context) error {
	names, err := fs.ReadDir(h.Programs.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the image's programs: %w", err)
	}
	if err := h.Folder.MkdirAll(programs, 0o755); err != nil {
		return fmt.Errorf("place programs on the node: %w", err)
	}
	for _, entry := range names {
		if err := h.place(entry.Name()); err != nil {
			return fmt.Errorf("place %s on the node: %w", entry.Name(), err)
		}
	}
	if _, err := h.Folder.Stat(restartMark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := h.restartShim(ctx); err != nil {
		return err
	}
	return h.Folder.Remove(restartMark)
}

// place copies a program, unless the node has the same one.
func (h *Host) place(name string) error {
	to := path.Join(programs, name)
	ours, err := digest(h.Programs, name)
	if err != nil {
		return err
	}
	switch theirs, err := digest(h.Folder, to); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bytes.Equal(ours, theirs):
		return nil
	default:
		if err := h.Folder.WriteFile(restartMark, nil, 0o600); err != nil {
			return err
		}
	}
	from, err := h.Programs.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	return replace(h.Folder, to, from)
}

// replace writes a program atomically: a running one stays as it is.
func replace(root *os.Root, name string, text io.Reader) error {
	f, err := root.OpenFile(name+suffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, text)
	if err = errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, root.Remove(name+suffix))
	}
	return root.Rename(name+suffix, name)
}

func digest(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}

// Remove deletes the programs and the log from the node. The folder stays, as it is a mount.
func (h *Host) Remove() error {
	for _, name := range []string{programs, logFile, restartMark} {
		if err := h.Folder.RemoveAll(name); err != nil {
			return fmt.Errorf("remove programs from the node: %w", err)
		}
	}
	return nil
}
