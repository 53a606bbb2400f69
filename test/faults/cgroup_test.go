//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// removeCgroups removes a pod's cgroup, as a kubelet does: one that still holds a process can't be.
// What containerd and runc left of a sandbox whose making was cut off goes along, also as by a
// kubelet; the cgroup of the VM container, whose id it bears, has to be gone.
func removeCgroups(ctx context.Context, path, container string) error {
	return converge(ctx, func(context.Context) error {
		for _, dir := range cgroupDirs(path) {
			below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
			for _, procs := range below {
				child := filepath.Dir(procs)
				if container != "" && strings.Contains(child, container) {
					return fmt.Errorf("the VM container left its cgroup %s", child)
				}
				if err := removeCgroup(child); err != nil {
					return err
				}
			}
			if err := removeCgroup(dir); err != nil {
				return err
			}
		}
		return nil
	})
}

func removeCgroup(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the pod left something in its cgroup: %w", err)
	}
	return nil
}

// cgroupDirs are the folders of a cgroup, in each hierarchy that has it.
func cgroupDirs(path string) []string {
	all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", path))
	if unified, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", path)); len(unified) > 0 {
		all = append(all, unified...)
	}
	return slices.DeleteFunc(all, func(dir string) bool { // cpu and cpuacct are links to one
		i, err := os.Lstat(filepath.Dir(strings.TrimSuffix(dir, path)))
		return err == nil && i.Mode()&fs.ModeSymlink != 0
	})
}
