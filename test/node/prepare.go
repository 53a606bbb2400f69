package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/node/supervisor"
)

// Programs is the folder of built programs in the node. VMs' users execute one of them, and may not be able
// to enter the checkout.
const Programs = "/run/bin"

// prepare makes the folders of a node that is about to start, and empties those that a machine
// that boots finds empty too.
func (o Options) prepare(ctx context.Context) error {
	if err := removeCgroups(ctx, o.Name); err != nil {
		return err
	}
	for _, dir := range []string{o.run(), o.path("log")} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("empty folder: %w", err)
		}
	}
	c := supervisor.Config{
		Hostname: o.Hostname,
		Cgroup:   o.cgroup(),
		Run:      o.run(),
		Bound:    o.Bound,
		Forward:  o.Expose,
		Binds: append([]supervisor.Bind{
			{From: o.etc("libvirt"), To: "/etc/libvirt"},
			{From: o.path("libvirt"), To: "/var/lib/libvirt"},
			{From: o.path("log", "libvirt"), To: "/var/log/libvirt"},
			{From: filepath.Join(o.Cache, "libvirt"), To: "/var/cache/libvirt"},
			{From: o.path("cni"), To: "/var/lib/cni"},
			{From: o.Bin, To: Programs},
		}, o.Binds...),
	}
	dirs := []string{o.run("containerd"), o.run("libvirt"), o.run("nodevirt"), o.run(tgtdFolder), o.path("cwd"), o.path("nodevirt")}
	for _, b := range c.Binds {
		if !exists(b.From) { // it may be a file
			dirs = append(dirs, b.From)
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	users, err := o.users()
	if err != nil {
		return err
	}
	kvm, err := o.kvm()
	if err != nil {
		return err
	}
	c.Binds = append(append(c.Binds, users...), kvm...)
	return c.Write(o.etc("init.json"))
}

// users gives the node the users that libvirtd wants to find at its start: the group that
// qemu.conf names, and Debian's default, whatever qemu.conf says. The packages that would make
// them also start services on the machine.
func (o Options) users() ([]supervisor.Bind, error) {
	passwd, err := o.extend("/etc/passwd", "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin")
	if err != nil {
		return nil, err
	}
	group, err := o.extend("/etc/group", "libvirt-qemu:x:64055:", "kvm:x:64056:")
	return []supervisor.Bind{passwd, group}, err
}

// extend makes a copy of a file like /etc/passwd, with those lines added whose name is new to it.
func (o Options) extend(path string, lines ...string) (supervisor.Bind, error) {
	old, err := os.ReadFile(path)
	if err != nil {
		return supervisor.Bind{}, fmt.Errorf("read the machine's users: %w", err)
	}
	text := "\n" + string(old)
	for _, line := range lines {
		if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, "\n"+name+":") {
			text += line + "\n"
		}
	}
	own := o.etc(filepath.Base(path))
	if err := os.WriteFile(own, []byte(text[1:]), 0o644); err != nil {
		return supervisor.Bind{}, fmt.Errorf("write the node's users: %w", err)
	}
	return supervisor.Bind{From: own, To: path}, nil
}

// kvm gives the node a /dev/kvm that all users may open, as systemd's own rules make it; the host's
// may be for root alone. The node has none if the host has none.
func (o Options) kvm() ([]supervisor.Bind, error) {
	const device = "/dev/kvm"
	var info unix.Stat_t
	if err := unix.Stat(device, &info); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("look at %s: %w", device, err)
	}
	own := o.etc("kvm")
	err := unix.Mknod(own, unix.S_IFCHR|0o666, int(info.Rdev))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make the node's %s: %w", device, err)
	}
	if err := os.Chmod(own, 0o666); err != nil { // whatever the umask is
		return nil, fmt.Errorf("open the node's %s: %w", device, err)
	}
	return []supervisor.Bind{{From: own, To: device}}, nil
}

// hostUUID is the node's name for libvirt, made once.
func (o Options) hostUUID() (string, error) {
	path := o.etc("host-uuid")
	if text, err := os.ReadFile(path); err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	id := uuid.NewString()
	_, err := writeFiles(map[string]string{path: id + "\n"})
	return id, err
}
