package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// diskFile is the guest's disk in a folder, as in KubeVirt.
const diskFile = "disk.img"

// readOnly are the flags with which files are opened. A pipe that a guest made must not hold the
// server: O_NONBLOCK opens it at once.
const readOnly = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// errKind refuses what no client can read, such as a pipe.
var errKind = errors.New("neither a file nor a folder")

// volume is a PVC that the server has open.
type volume struct {
	Volume
	// root is the folder; nil for a block device.
	root *os.Root
}

// openVolume opens a PVC and tries to read it: the server must not start if it cannot serve.
func openVolume(v Volume) (*volume, error) {
	opened := &volume{Volume: v}
	if !v.Block {
		root, err := os.OpenRoot(v.Path)
		if err != nil {
			return nil, unreadable(v, err)
		}
		opened.root = root
	}
	if err := opened.try(); err != nil {
		opened.close()
		return nil, unreadable(v, err)
	}
	return opened, nil
}

// OpenDisk opens the disk in a volume. The caller closes the file.
func OpenDisk(v Volume) (*os.File, error) {
	opened, err := openVolume(v)
	if err != nil {
		return nil, err
	}
	defer opened.close()
	f, err := opened.disk()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("volume %s has no %s: start its VM once", v.Name, diskFile)
	case err != nil:
		return nil, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	return f, nil
}

// unreadable names the remedy for a volume that belongs to another user.
func unreadable(v Volume, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("volume %s: %w", v.Name, err)
	}
	if v.Block {
		return fmt.Errorf("volume %s: %w; have containerd set device_ownership_from_security_context", v.Name, err)
	}
	return fmt.Errorf("volume %s: %w; use storage whose driver honours a pod's fsGroup", v.Name, err)
}

// try reads the volume's beginning. A disk that no VM has made yet is no reason to fail: the
// other volumes can be served.
func (v *volume) try() error {
	if !v.Block && !v.Disk {
		f, err := openFile(v.root, ".")
		if err != nil {
			return err
		}
		defer f.Close()
		return nil
	}
	f, err := v.disk()
	if errors.Is(err, fs.ErrNotExist) && !v.Block {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (v *volume) close() {
	if v.root != nil {
		v.root.Close()
	}
}

// disk opens the guest's disk.
func (v *volume) disk() (*os.File, error) {
	if v.Block {
		return os.OpenFile(v.Path, readOnly, 0)
	}
	f, err := openFile(v.root, diskFile)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s: %w", diskFile, errKind))
	}
	return f, nil
}

// openFile opens a file or a folder below root. Symbolic links lead nowhere else.
func openFile(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, readOnly, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fmt.Errorf("%s: %w", name, errKind)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
