package imageunpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Overlay makes a new qcow2 file at path that shows d and takes the writes of one machine. It is
// 0600, and the caller's to delete. A file that is there already is an error, never replaced.
//
// The overlay names its backing file in a way that nobody can open. Whoever uses it has to hand
// the file of [Unpacker.Open] to QEMU as the backing node, by descriptor, with the format of d.
func (u *Unpacker) Overlay(ctx context.Context, d Disk, path string) error {
	if err := u.create(ctx, path, overlayArgs(d, path)); err != nil {
		return fmt.Errorf("make overlay %s of image %q: %w", path, d.Image, err)
	}
	return nil
}

// Blank makes a new qcow2 file at path that holds an empty disk of size bytes, a multiple of 512.
// The file is as that of [Unpacker.Overlay].
func (u *Unpacker) Blank(ctx context.Context, size int64, path string) error {
	err := CheckSize("disk", size, u.opts.MaxDiskSize)
	if err == nil {
		err = u.create(ctx, path, []string{"create", "-q", "-f", string(QCOW2), path, strconv.FormatInt(size, 10)})
	}
	if err != nil {
		return fmt.Errorf("make empty disk %s: %w", path, err)
	}
	return nil
}

// create has qemu-img fill a new file at path.
func (u *Unpacker) create(ctx context.Context, path string, args []string) (err error) {
	if !filepath.IsAbs(path) {
		return errors.New("the path is not absolute")
	}
	// qemu-img would make it 0644; it keeps the mode of a file that is there.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsent(os.Remove(path))) // qemu-img removes what it can't finish
		}
	}()
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, u.opts.QemuImg, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // "signal: killed" tells less
	}
	if err != nil && bytes.Contains(stderr.Bytes(), []byte("No space left on device")) {
		err = syscall.ENOSPC
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// overlayArgs are qemu-img's arguments. With -u it opens no backing file, so the size is given.
func overlayArgs(d Disk, path string) []string {
	return []string{
		"create", "-q", "-f", string(QCOW2), "-u",
		"-b", backingName(d), "-F", string(d.Format),
		path, strconv.FormatInt(d.VirtualSize, 10),
	}
}

// backingName is what an overlay says about its backing file, for a person who looks at it. What
// stands before the colon is a protocol to QEMU and to libvirt; neither has one of that name, so
// that an attempt to follow it ends there. The path in the image stays out: it is a stranger's.
func backingName(d Disk) string {
	return "nodevirt-image:" + d.ImageID
}
