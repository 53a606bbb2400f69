package csi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// deviceAt is the number of the block device at a path: of the device itself, or of the file system there.
func deviceAt(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	if s.Mode&unix.S_IFMT == unix.S_IFBLK {
		return s.Rdev, nil
	}
	return s.Dev, nil
}

// isDevice reports whether a path is a block device itself.
func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == os.ModeDevice
}

// mounted reports whether a path leads to a device, by a mount of its file system or of the device. The
// path may be missing.
func mounted(device, path string) (bool, error) {
	want, err := deviceAt(device)
	if err != nil {
		return false, err
	}
	have, err := deviceAt(path)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && have == want, err
}

// mountFS mounts a device's file system on a folder. A blank device gets one first. It is as large as the
// device afterwards: the device may be a larger copy of another one.
func mountFS(ctx context.Context, device, folder string, flags []string, readOnly bool) error {
	if done, err := mounted(device, folder); done || err != nil {
		return err
	}
	if readOnly {
		flags = append([]string{"ro"}, flags...)
	} else if err := format(ctx, device); err != nil {
		return err
	}
	flags = append([]string{"nouuid"}, flags...) // what it is a copy of may be mounted, too
	if err := run(ctx, "mount", "-t", fsType, "-o", strings.Join(flags, ","), device, folder); err != nil {
		return err
	}
	if readOnly {
		return nil
	}
	return grow(ctx, folder)
}

// lock waits for a file's lock, which is held until unlock is called or the driver ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		default:
			return func() { _ = f.Close() }, nil
		}
	}
}

// format makes a file system on a device that holds nothing.
func format(ctx context.Context, device string) error {
	err := run(ctx, "blkid", "-p", device)
	const nothing = 2 // see blkid(8)
	if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == nothing {
		return makeFileSystem(ctx, device)
	}
	return err
}

// makeFileSystem makes a file system with a small log: the usual one takes more of a GiB than the twentieth that CDI
// adds to a disk's size.
func makeFileSystem(ctx context.Context, device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("size of %s: %w", device, err)
	}
	args := []string{"-q", "--unsupported"} // it may be small
	const usual = 512 << 20                 // from here on mkfs.xfs takes 64 MiB
	if size >= usual {
		args = append(args, "-l", "size=16m")
	}
	return run(ctx, "mkfs."+fsType, append(args, device)...)
}

// grow makes the file system that is mounted on a folder as large as its device.
func grow(ctx context.Context, folder string) error { return run(ctx, "xfs_growfs", folder) }

// bind shows what is at a path at another one, too, where a folder or a file must be.
func bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("make %s read-only: %w", to, err), unmount(to))
	}
	return nil
}

// unmount removes all mounts from a path, which may be missing.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil // nothing is mounted there
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// run runs a program to its end, also if the caller does not wait for it.
func run(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
