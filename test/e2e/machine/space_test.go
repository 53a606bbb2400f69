//go:build machine

package machine

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/guest"
)

// bootScript boots a space.
//
//go:embed boot.sh
var bootScript string

// space is a machine of namespaces: the Debian of the VM, but with the kernel, and without AppArmor,
// of this one. It is connected to the cluster's network.
type space struct {
	dir    string // with root and payload
	groups []string
	boots  *exec.Cmd     // unshare, whose child is the machine's first process
	ended  chan struct{} // closed after its end
	log    bytes.Buffer  // of systemd; to be read after the end
}

// hardware are the units of what a space does not have, or must not change.
const hardware = "systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service " +
	"systemd-sysctl.service systemd-modules-load.service apparmor.service serial-getty@ttyS0.service console-getty.service " +
	"systemd-networkd.service systemd-networkd.socket qemu-guest-agent.service"

// newSpace makes the machine's root file system in a folder with the payload.
func newSpace(ctx context.Context, o guest.Options, dir string) (*space, error) {
	s := &space{dir: dir}
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make the machine's root: %w", err)
	}
	if err := guest.MachineRoot(ctx, o, root); err != nil {
		return nil, err
	}
	for path, text := range map[string]string{
		filepath.Join(root, "etc/fstab"): "", filepath.Join(dir, "boot.sh"): bootScript,
		filepath.Join(root, "etc/hosts"): "127.0.0.1 localhost " + name + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write the machine's files: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "opt/payload"), 0o755); err != nil {
		return nil, fmt.Errorf("make the payload's folder: %w", err)
	}
	mask := exec.CommandContext(ctx, "chroot", append([]string{root, "systemctl", "mask"}, strings.Fields(hardware)...)...)
	if out, err := mask.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mask units: %w: %s", err, out)
	}
	return s, s.makeGroups()
}

// makeGroups makes the machine's cgroups, of v1 or v2.
func (s *space) makeGroups() error {
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		text, err := os.ReadFile("/proc/mounts")
		if err != nil {
			return fmt.Errorf("find cgroups: %w", err)
		}
		roots = nil
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); f[2] == "cgroup" {
				roots = append(roots, f[1])
			}
		}
	}
	for _, root := range roots {
		group := filepath.Join(root, filepath.Base(s.dir))
		if err := os.Mkdir(group, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		s.groups = append(s.groups, group)
		if filepath.Base(root) != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a new group of v1 has none
			text, err := os.ReadFile(filepath.Join(root, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(group, file), text, 0o644)
			}
			if err != nil {
				return fmt.Errorf("fill a cgroup: %w", err)
			}
		}
	}
	return nil
}

func (s *space) boot(t *testing.T) {
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// start starts systemd, and connects the machine.
func (s *space) start(ctx context.Context) error {
	s.log.Reset()
	script := `for group in $1; do echo $$ >"$group/cgroup.procs"; done
exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup sh "$2/boot.sh" "$2/root" "$2/payload"`
	// Not bound to ctx: it is the test's, and the machine ends by remove.
	s.boots = exec.Command("sh", "-c", script, "sh", strings.Join(s.groups, " "), s.dir)
	s.boots.Stdout, s.boots.Stderr = &s.log, &s.log
	s.boots.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.boots.Start(); err != nil {
		return fmt.Errorf("start the machine: %w", err)
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() { _ = s.boots.Wait(); close(ended) }()
	pid, err := s.pid(ctx)
	if err != nil {
		return err
	}
	control := fmt.Sprint(suite.Control().PID())
	for _, args := range [][]string{
		// The kernel may still be at work on the network of before a reboot.
		{"-t", control, "--net", "sh", "-c", "ip link delete machine0 2>/dev/null || true"},
		{"-t", control, "--net", "ip", "link", "add", "machine0", "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"-t", control, "--net", "ip", "link", "set", "machine0", "master", "cluster0", "up"},
		{"-t", pid, "--net", "ip", "address", "add", "10.200.0.200/24", "dev", "eth0"},
		{"-t", pid, "--net", "ip", "link", "set", "eth0", "up"},
		{"-t", pid, "--net", "ip", "route", "add", "default", "via", suite.ControlAddress()},
	} {
		if out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("connect the machine: %q: %w: %s", args, err, out)
		}
	}
	return nil
}

// pid is the machine's first process, once that is systemd.
func (s *space) pid(ctx context.Context) (string, error) {
	unshare := fmt.Sprint(s.boots.Process.Pid)
	for ctx.Err() == nil {
		text, err := os.ReadFile(filepath.Join("/proc", unshare, "task", unshare, "children"))
		if child := strings.TrimSpace(string(text)); err == nil && child != "" {
			if comm, err := os.ReadFile(filepath.Join("/proc", child, "comm")); err == nil && string(comm) == "systemd\n" {
				return child, nil
			}
		}
		select {
		case <-s.ended:
			return "", fmt.Errorf("start the machine: %s", s.log.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return "", context.Cause(ctx)
}

func (s *space) command(ctx context.Context, args ...string) *exec.Cmd {
	pid, err := s.pid(ctx)
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"-t", pid, "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--wd=/", "env", "-i",
	}, args...)...)
}

func (s *space) rebooted(t *testing.T) {
	select {
	case <-s.ended:
	case <-time.After(patience):
		t.Fatal("the machine does not end")
	}
	s.boot(t)
}

// remove ends the machine, and removes its cgroups.
func (s *space) remove(context.Context) error {
	if s.boots != nil {
		_ = s.boots.Process.Kill() // --kill-child has the machine go with it
		<-s.ended
	}
	var errs []error
	for _, group := range s.groups {
		errs = append(errs, removeGroup(group))
	}
	return errors.Join(errs...)
}

// removeGroup removes a cgroup and those below it. Killed processes take a moment to leave.
func removeGroup(group string) error {
	var err error
	for range 100 {
		var all []string
		err = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(all) {
			if e := os.Remove(dir); e != nil {
				err = e
			}
		}
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("remove a cgroup: %w", err)
}
