package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Archives are the archives of checkpoints in the folders of volumes. The volumes' other users may
// write there, too.
type Archives struct{}

// Create creates the file of an archive, in place of an earlier one. It never opens a file that
// exists.
func (Archives) Create(folder, name string) (*os.File, error) {
	var f *os.File
	err := inFolder(folder, func(root *os.Root) (err error) {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err = createIn(root, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: create the archive: %w", ErrVolume, err)
	}
	return f, nil
}

// Rename gives a complete archive its name, which a crash of the node does not undo.
func (Archives) Rename(folder, from, to string) error {
	err := inFolder(folder, func(root *os.Root) error {
		if err := root.Rename(from, to); err != nil {
			return err
		}
		f, err := root.Open(".")
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		return fmt.Errorf("%w: rename the archive: %w", ErrVolume, err)
	}
	return nil
}

// Remove removes the file of an archive. A file, or a folder, that is missing is no error.
func (Archives) Remove(folder, name string) error {
	err := inFolder(folder, func(root *os.Root) error { return root.Remove(name) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: remove an incomplete archive: %w", ErrVolume, err)
	}
	return nil
}

// Open opens an archive to read. It waits for no writer of a pipe.
func (Archives) Open(folder, name string) (*os.File, error) {
	var f *os.File
	err := inFolder(folder, func(root *os.Root) (err error) {
		f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: open the archive: %w", ErrVolume, err)
	}
	return f, nil
}

// createIn creates a file, and never opens one that exists.
func createIn(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
}

// inFolder does something in the folder of a volume that a VM may have.
func inFolder(folder string, do func(root *os.Root) error) error {
	if err := checkSubPath(folder); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}
