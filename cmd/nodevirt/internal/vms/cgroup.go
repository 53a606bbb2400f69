package vms

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// The parent cgroup of the pods of nodevirt run, which is removed with the last of them.
const (
	CgroupParent = "/nodevirt"
	tries        = 100
	tryTime      = 20 * time.Millisecond
)

// removeCgroup removes a pod's cgroup in each hierarchy, and the parent
// CgroupParent if it is empty. It leaves slices to systemd. It retries for a
// moment, since processes that were just killed keep their cgroup.
func removeCgroup(ctx context.Context, group string) error {
	if group == "" || group == "/" || strings.HasSuffix(group, ".slice") {
		return nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return fmt.Errorf("find the cgroups: %w", err)
	}
	points := map[string]bool{}
	for _, m := range mounts {
		points[m.Mountpoint] = true
	}
	points["/sys/fs/cgroup/unified"] = true // version 2 beside version 1
	for try := 0; ; try++ {
		var errs []error
		for point := range points {
			errs = append(errs, rmdir(filepath.Join(point, group)))
		}
		err := errors.Join(errs...)
		if err == nil || try == tries {
			if filepath.Dir(group) == CgroupParent {
				for point := range points {
					_ = unix.Rmdir(filepath.Join(point, CgroupParent)) // fails while it has other children
				}
			}
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(tryTime):
		}
	}
}

func rmdir(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}
