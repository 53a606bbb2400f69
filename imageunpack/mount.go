package imageunpack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// mountPrefix is the prefix of the mount points' names in Options.MountDir.
const mountPrefix = "view-"

// mountRoot mounts a snapshot and opens its top folder. It detaches the mount before it returns: the
// mount is not in the file tree, and lasts as long as the root, or a file opened through it, is open.
//
// A mount is needed, instead of the snapshotter's folder, for two reasons. It combines the layers. And
// an image may give its disk mode 0666: on a read-only mount a process that gets a descriptor can't
// open the file again for writing, through /proc/self/fd.
func mountRoot(mounts []mount.Mount, dir string) (_ *os.Root, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil { // a run folder may be emptied while the shim runs
		return nil, fmt.Errorf("make a mount point: %w", err)
	}
	target, err := os.MkdirTemp(dir, mountPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a mount point: %w", err)
	}
	defer func() { err = errors.Join(err, unmount(target)) }()
	if err := mount.All(hardened(mounts), target); err != nil {
		return nil, fmt.Errorf("mount the image: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, fmt.Errorf("open the mounted image: %w", err)
	}
	return root, nil
}

// Sweep removes the mounts that a crash left. Call it once, before any other method.
func (u *Unpacker) Sweep() error {
	entries, err := os.ReadDir(u.opts.MountDir)
	if err != nil {
		return fmt.Errorf("find left mounts: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), mountPrefix) {
			errs = append(errs, unmount(filepath.Join(u.opts.MountDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// unmount detaches all mounts on target and removes target itself. It must not use RemoveAll, which
// would delete the image if the unmount had failed.
func unmount(target string) error {
	if err := mount.UnmountAll(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// hardened returns the mounts with the options for untrusted files.
func hardened(mounts []mount.Mount) []mount.Mount {
	out := slices.Clone(mounts)
	for i := range out {
		options := slices.DeleteFunc(slices.Clone(out[i].Options), func(o string) bool {
			return o == "rw"
		})
		for _, o := range []string{"ro", "nosuid", "nodev", "noexec"} {
			if !slices.Contains(options, o) {
				options = append(options, o)
			}
		}
		out[i].Options = options
	}
	return out
}
