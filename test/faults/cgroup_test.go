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

// removeCgroups removes a pod's cgroup, as a kubelet does: one that still holds something can't be.
func removeCgroups(ctx context.Context, path string) error {
	return converge(ctx, func(context.Context) error {
		for _, dir := range cgroupDirs(path) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("the pod left something in its cgroup: %w", err)
			}
		}
		return nil
	})
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
