package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts gives the node a separate view of the file system: /proc of its processes, /sys of its
// network, an empty /run, and its own folders in the places where daemons expect theirs.
func mounts(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("cut mounts off the machine's: %w", err)
	}
	if err := mount("proc", "/proc", "proc", 0); err != nil {
		return err
	}
	if err := sys(c.Run); err != nil {
		return err
	}
	if err := run(c.Run); err != nil {
		return err
	}
	for _, b := range c.Binds {
		if err := mountPoint(b.To); err != nil {
			return err
		}
		if err := mount(b.From, b.To, "", unix.MS_BIND); err != nil {
			return err
		}
	}
	// Shared within the node, as on a machine that systemd runs, for volumes that are mounted while
	// a pod runs. Only now, so that each mount is a separate group.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts within the node: %w", err)
	}
	return nil
}

// mountPoint makes the folder at path if nothing is there; a file may be one too.
func mountPoint(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}

// sys mounts a /sys that shows this network namespace's devices, and puts the machine's cgroup
// mounts, which the new one hides, back into it. They wait in scratch meanwhile.
func sys(scratch string) error {
	const cgroup = "/sys/fs/cgroup"
	if err := mount(cgroup, scratch, "", unix.MS_BIND|unix.MS_REC); err != nil {
		return err
	}
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /sys: %w", err)
	}
	if err := mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	return mount(scratch, cgroup, "", unix.MS_MOVE)
}

// run shows dir as /run. A resolv.conf that is a link into /run, as systemd-resolved makes it,
// must be found there still.
func run(dir string) error {
	const conf = "/etc/resolv.conf"
	target, _ := filepath.EvalSymlinks(conf)
	text, _ := os.ReadFile(conf)
	if err := mount(dir, "/run", "", unix.MS_BIND); err != nil {
		return err
	}
	if !strings.HasPrefix(target, "/run/") {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("keep %s: %w", conf, err)
	}
	if err := os.WriteFile(target, text, 0o644); err != nil {
		return fmt.Errorf("keep %s: %w", conf, err)
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
