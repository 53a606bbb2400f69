package expand

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// canClone reports whether the file system of a folder shares data between files.
func canClone(dir string) (_ bool, err error) {
	var files [2]*os.File
	for i := range files {
		if files[i], err = os.CreateTemp(dir, "probe-"); err != nil {
			return false, fmt.Errorf("test for reflinks: %w", err)
		}
		defer files[i].Close()
		if err := os.Remove(files[i].Name()); err != nil {
			return false, fmt.Errorf("test for reflinks: %w", err)
		}
	}
	if _, err := files[0].Write([]byte("shared?")); err != nil {
		return false, fmt.Errorf("test for reflinks: %w", err)
	}
	return unix.IoctlFileClone(int(files[1].Fd()), int(files[0].Fd())) == nil, nil
}

// clone makes a new file at path that shares its data with another one.
func clone(from *os.File, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	err = unix.IoctlFileClone(int(f.Fd()), int(from.Fd()))
	if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EOPNOTSUPP) {
		return errNoBase
	}
	if err != nil {
		return fmt.Errorf("clone %s: %w", from.Name(), err)
	}
	return nil
}
