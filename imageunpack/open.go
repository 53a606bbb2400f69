package imageunpack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// maxQuoted is how many characters of a path an error quotes.
const maxQuoted = 255

// Open opens a regular file of d's image for reading: the disk itself (d.Path), or another one,
// such as a kernel. Name is an absolute path in the image. The caller must close the file, which
// stays valid after [Unpacker.Release].
func (u *Unpacker) Open(ctx context.Context, d Disk, name string) (*os.File, error) {
	f, err := u.open(u.inNamespace(ctx), d, name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", d.Image, err)
	}
	return f, nil
}

func (u *Unpacker) open(ctx context.Context, d Disk, name string) (*os.File, error) {
	mounts, err := u.client.SnapshotService(d.Snapshotter).Mounts(ctx, d.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("get the mounts of view %s: %w", d.Snapshot, err)
	}
	root, err := mountRoot(mounts, u.opts.MountDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if !path.IsAbs(name) {
		return nil, fmt.Errorf("%q is not an absolute path of a file in the image: %w", name, ErrOutside)
	}
	f, err := openRegular(root, path.Clean(name))
	if err == nil && name == d.Path && d.Size > 0 {
		err = sameSize(f, d.Size)
	}
	if err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

// sameSize returns an error if a disk is not as long as when it was acquired.
func sameSize(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil || info.Size() == size {
		return err
	}
	return fmt.Errorf("%w: the disk has %d bytes instead of %d%s", ErrTruncated, info.Size(), size, pullAgain)
}

// pullAgain is the remedy for an image whose copy on this node is damaged. An unpacked image is not compared
// with its digest.
const pullAgain = "; if the image worked before, the node's copy of it is damaged, for example by a power cut: " +
	"remove the containers that use it, then the image with crictl rmi, and pull it again"

// openRegular opens a regular file of an image. Name is absolute and clean.
func openRegular(root *os.Root, name string) (*os.File, error) {
	// Check the type first: opening a device or a pipe can have effects, or block. The content of an
	// image doesn't change; O_NONBLOCK covers the case that it does.
	info, err := stat(root, name)
	if err != nil {
		return nil, err
	}
	if err := regular(info, name); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(inRoot(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, lookupError(name, err)
	}
	if info, err = f.Stat(); err == nil {
		err = regular(info, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// stat follows symbolic links inside the image.
func stat(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(inRoot(name))
	if err != nil {
		return nil, lookupError(name, err)
	}
	return info, nil
}

func regular(info fs.FileInfo, name string) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%q is a %s, %w: put the file itself there", name, kind(info.Mode()), ErrNotRegular)
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// lookupError returns the error for a failed look-up of name.
func lookupError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%.*q: %w", maxQuoted, name, ErrNotFound)
	}
	// The name, or the target of a link, is too long or contains a zero byte.
	if errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%.*q is not a valid file name, or links to one that is not: %w", maxQuoted, name, ErrNotFound)
	}
	if errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%q is a loop of symbolic links: %w", name, ErrNotFound)
	}
	if _, ok := errors.AsType[syscall.Errno](err); !ok {
		// os.Root exports no value for this error, the only one without an errno.
		return fmt.Errorf("%q %w: it is or goes through a symbolic link that is absolute or leaves "+
			"the image; make it relative, or put the file itself there", name, ErrOutside)
	}
	return fmt.Errorf("look up %q: %w", name, err)
}

// inRoot converts an absolute path in an image to one for os.Root.
func inRoot(name string) string {
	if rel := strings.TrimPrefix(name, "/"); rel != "" {
		return rel
	}
	return "."
}
