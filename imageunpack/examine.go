package imageunpack

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
)

// examine mounts an image and examines it.
func (u *Unpacker) examine(ctx context.Context, mounts []mount.Mount, want string) (Disk, error) {
	// Checking a hostile disk takes much processor time and memory.
	if err := u.checks.Acquire(ctx, 1); err != nil {
		return Disk{}, fmt.Errorf("wait for the checks of other disks: %w", err)
	}
	defer u.checks.Release(1)
	ctx, cancel := limited(ctx)
	defer cancel()
	root, err := mountRoot(mounts, u.opts.MountDir)
	if err != nil {
		return Disk{}, err
	}
	defer root.Close()
	return Examine(ctx, root, want, u.opts.MaxDiskSize)
}

// checkTime is how long a check may keep others waiting. The worst disk takes a sixth of it. A disk
// that is fetched from a slow registry while it is read can take longer; the next try finds what
// this one has fetched.
const checkTime = time.Minute

func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, checkTime,
		fmt.Errorf("the check did not end within %v: is the image's registry slow? The next try continues", checkTime))
}

// Examine finds the disk among an image's files, checks it and describes it: its path, format and
// sizes. Want is the path, and the errors are those, of [Unpacker.Acquire]; maxSize is the maximum of
// a disk, in bytes.
func Examine(ctx context.Context, root *os.Root, want string, maxSize int64) (Disk, error) {
	name, err := findDisk(root, want)
	if err != nil {
		return Disk{}, err
	}
	f, err := openRegular(root, name)
	if err != nil {
		return Disk{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Disk{}, fmt.Errorf("stat %q: %w", name, err)
	}
	found, err := inspect(cancelable{ctx, f}, info.Size(), maxSize)
	if err != nil {
		return Disk{}, fmt.Errorf("%q: %w", name, err)
	}
	d := Disk{Path: name, Format: found.format, VirtualSize: found.size, Content: found.content, Size: info.Size()}
	if found.format == Raw {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			d.Content = min(found.content, st.Blocks*512) // it may have holes
		}
		d.CD, err = isoSignature().in(f, info.Size())
	}
	return d, err
}

// isoSignature is the signature of a primary volume descriptor (ECMA-119, 8.4), at its usual offset.
func isoSignature() signature {
	return signature{name: "ISO 9660", magic: "\x01CD001", offset: 16 * 2048}
}

// cancelable is a reader whose calls fail when ctx has ended.
type cancelable struct {
	ctx context.Context
	r   io.ReaderAt
}

func (c cancelable) ReadAt(p []byte, off int64) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.ReadAt(p, off)
}
