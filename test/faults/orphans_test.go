//go:build faults

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// tidy removes what daemons that were killed leave, by themselves, for good.
func (r *round) tidy(ctx context.Context) error {
	// libvirtd writes a definition, and a domain's status, beside its place and forgets it there; rarely
	// also the folders of a domain that it was starting, in which the name is cut.
	short := ("default_" + r.name)[:20]
	for _, pattern := range []string{
		"etc/libvirt/qemu/default_" + r.name + "_*.xml.new", "run/libvirt/qemu/default_" + r.name + "_*.xml.new",
		"libvirt/qemu/domain-*-" + short, "libvirt/qemu/channel/target/domain-*-" + short,
		"run/libvirt/qemu/channel/*-" + short, // libvirt 11's
	} {
		left, _ := filepath.Glob(filepath.Join(suite.Dir(), pattern))
		for _, path := range left {
			if !r.hasVictim(node.Libvirtd) {
				return fmt.Errorf("libvirtd was not killed and left %s", path)
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	if r.at > 0 || !r.hasVictim(node.Containerd) && !r.givenUp {
		return nil
	}
	if err := r.removeLeases(ctx); err != nil {
		return err
	}
	if err := r.removeNamespaces(ctx); err != nil {
		return err
	}
	return killOrphans(ctx)
}

// removeNamespaces removes the network namespaces that containerd makes for a pod, and forgets if it is
// killed before it has a record of that: some are no more than the files to mount one on.
func (r *round) removeNamespaces(ctx context.Context) error {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/run/netns/*", suite.PID()))
	for _, path := range files {
		name := filepath.Base(path)
		var fs unix.Statfs_t
		if err := unix.Statfs(path, &fs); err != nil {
			continue // it went
		}
		path = filepath.Join("/run/netns", name)
		if fs.Type == unix.NSFS_MAGIC {
			if r.before == nil || slices.Contains(r.before["netns"], name) {
				continue // of a pod that runs, or may
			}
			if _, err := suite.Output(ctx, "umount", path); err != nil {
				return err
			}
		}
		if _, err := suite.Output(ctx, "rm", "-f", path); err != nil {
			return err
		}
	}
	return nil
}

// removeLeases removes those that containerd takes for itself in the middle of a call, and would let
// go with the snapshots that they keep after a day.
func (r *round) removeLeases(ctx context.Context) error {
	if r.before == nil {
		return nil // a pod beside others, whose leases these may be
	}
	ids, err := suite.Output(ctx, "ctr", "--namespace", "k8s.io", "leases", "list", "--quiet")
	if err != nil {
		return err
	}
	for id := range strings.FieldsSeq(ids) {
		if strings.HasPrefix(id, "nodevirt-") || slices.Contains(r.before["lease"], id) {
			continue
		}
		if _, err := suite.Output(ctx, "ctr", "--namespace", "k8s.io", "leases", "delete", "--sync", id); err != nil &&
			!strings.Contains(err.Error(), "not found") { // containerd was faster
			return err
		}
	}
	return nil
}

func (p plan) hasVictim(victim string) bool {
	return slices.ContainsFunc(p.kills, func(k kill) bool { return k.victim == victim })
}

// killOrphans ends the processes that containerd leaves if it is killed in RunPodSandbox, or if its client
// cancels that call: the containerd shims of sandboxes without a record. None of nodevirt's processes is among
// them.
func killOrphans(ctx context.Context) error {
	reply, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, pid := range processes("containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00") {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		known := func(s *runtimeapi.PodSandbox) bool { return strings.Contains(string(line), s.Id) }
		if err != nil || !inNode(pid) || slices.ContainsFunc(reply.Items, known) {
			continue
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for text := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return nil
}

// inNode reports whether a process of the host is one of the node's.
func inNode(pid int) bool {
	ours, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", suite.PID()))
	its, itsErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && itsErr == nil && ours == its
}
