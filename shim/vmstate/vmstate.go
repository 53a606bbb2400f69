// Package vmstate opens what a VM keeps in a volume while it does not run: the variables of its UEFI
// firmware, and the state of its TPM.
//
// It owns the layout of the volume, the first copy of the variables, and the locks that keep a
// second VM out. Other pods may have written to the volume, so it opens only regular files of a
// bounded size below the volume's folder. It leaves the content to packages domain and tpm.
//
// QEMU and swtpm hold the locks, since they outlive the shim. The locks are on regular files: a network
// file system does not lock folders for other nodes. When a guest moves between two nodes that have
// the volume, the source's are released while both guests are stopped, and the target's are taken.
package vmstate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
)

var (
	// ErrUnusable says that the volume holds something else, or can't hold the state.
	ErrUnusable = errdefs.ErrInvalidArgument.WithMessage("unusable volume for persistent state")
	// ErrInUse says that another VM uses the state.
	ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("another VM uses the persistent state")
)

const (
	variables    = "uefi-variables"
	newVariables = variables + ".new"
	tpm          = "tpm"
	tpmLock      = tpm + ".lock"
)

// The bounds, in bytes and in number, of what is read from a volume. OVMF's variables have 528 KiB,
// and swtpm keeps a lock and up to three files.
const (
	maxVariables = 64 << 20
	maxTPMFile   = 1 << 20
	maxTPMFiles  = 16
)

// Variables opens a VM's UEFI variables in a volume's folder for reading and writing. The first
// call makes them a copy of the template, which is a file of the node. They are locked as long as
// some process has the descriptor, or one that it passed on.
func Variables(folder, template string) (*os.File, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer root.Close()
	whole, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer whole.Close()
	if err := lock(whole); err != nil { // so that two VMs do not both make the variables
		return nil, err
	}
	from, err := os.Open(template)
	if err != nil {
		return nil, fmt.Errorf("read the node's firmware: %w", err)
	}
	defer from.Close()
	size, err := from.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the node's firmware: %w", err)
	}
	f, err := open(root, variables, os.O_RDWR, maxVariables)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeVariables(root, from); err == nil {
			f, err = open(root, variables, os.O_RDWR, maxVariables)
		}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != size.Size() {
		err = fmt.Errorf("%w: the UEFI variables in it have %d bytes, and this node's firmware needs %d: "+
			"have the VM run on a node with its firmware, or delete file %s", ErrUnusable, info.Size(), size.Size(), variables)
	}
	if err == nil {
		err = lock(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// makeVariables makes the variables a copy of from, whole or not at all.
func makeVariables(root *os.Root, from io.Reader) error {
	f, err := root.OpenFile(newVariables, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("make UEFI variables: %w", err)
	}
	_, err = io.Copy(f, io.LimitReader(from, maxVariables))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(newVariables, variables)
	}
	if err != nil {
		return fmt.Errorf("make UEFI variables: %w", err)
	}
	return nil
}

// open opens a regular file of at most limit bytes.
func open(root *os.Root, name string, mode int, limit int64) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s in it is not a regular file", ErrUnusable, name)
	}
	f, err := root.OpenFile(name, mode|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	info, err = f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: %s in it is not a regular file", ErrUnusable, name)
	case info.Size() > limit:
		err = fmt.Errorf("%w: %s in it has more than %d bytes", ErrUnusable, name, limit)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
