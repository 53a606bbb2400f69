package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/node/supervisor"
)

// cgroup is that of the node's daemons.
func (o Options) cgroup() string { return "/" + o.Name + "/node" }

// hierarchies are the mount points of all cgroup hierarchies, of either version.
func hierarchies() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// See proc(5): the type follows a lone dash, the mount point is the fifth field.
		before, after, _ := strings.Cut(lines.Text(), " - ")
		kind, _, _ := strings.Cut(after, " ")
		if fields := strings.Fields(before); len(fields) > 4 && (kind == "cgroup" || kind == "cgroup2") {
			points = append(points, fields[4])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return points, nil
}

// cgroups lists the folders of a cgroup and of all below it, in every hierarchy, parents first.
func cgroups(name string) ([]string, error) {
	points, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, point := range points {
		err := filepath.WalkDir(filepath.Join(point, name), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went while we looked
			}
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
	}
	return all, nil
}

// ownCgroups are cgroups without those that a kubelet keeps for its pods' classes: containerd makes them too, in
// each hierarchy that the kubelet leaves out, for the first pod of a class that comes to the node.
func ownCgroups(name string) ([]string, error) {
	all, err := cgroups(name)
	return slices.DeleteFunc(all, func(path string) bool {
		parent, class := filepath.Split(path)
		return filepath.Base(parent) == "kubepods" && (class == "besteffort" || class == "burstable")
	}), err
}

// Group restarts components in a cgroup below the node's, where their CPU time and memory, and those of what they
// start, are counted. It goes with the node.
func (n *Node) Group(ctx context.Context, name string, components ...string) (err error) {
	if err := supervisor.Join(n.PID(), "/"+n.o.Name+"/"+name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, supervisor.Join(n.PID(), n.o.cgroup())) }()
	for _, c := range components {
		if err := n.Restart(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes a cgroup and all below it. Processes that were just killed hold
// theirs for a moment more.
func removeCgroups(ctx context.Context, name string) error {
	for end := time.Now().Add(endTime); ; {
		all, err := cgroups(name)
		if err != nil || len(all) == 0 {
			return err
		}
		var errs []error
		for _, dir := range slices.Backward(all) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
		if len(errs) > 0 && time.Now().After(end) {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, context.Cause(ctx))...)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// parentless are the cgroups into which containerd and the shim put a pod of crictl's that names no
// cgroup_parent. They are not this node's alone.
var parentless = []string{"k8s.io", "nodevirt"}

// removeEmptyCgroups removes cgroups that hold neither processes nor cgroups: who needs one makes
// it again.
func removeEmptyCgroups(names ...string) error {
	points, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		for _, name := range names {
			err := unix.Rmdir(filepath.Join(point, name))
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", filepath.Join(point, name), err))
			}
		}
	}
	return errors.Join(errs...)
}
