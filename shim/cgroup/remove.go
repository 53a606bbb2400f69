package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// ErrBusy means that a group still contains processes.
var ErrBusy = errdefs.ErrFailedPrecondition.WithMessage("cgroup still contains processes")

const (
	// emptyWait is how long Remove waits for the end of processes that were just killed.
	emptyWait = 2 * time.Second
	// emptyPoll is the first pause between two polls. Each further pause is twice as long.
	emptyPoll = 2 * time.Millisecond
)

// Remove removes the group, and nodevirt's own parent if that is empty. It kills no process: if some
// remain after two seconds, the error wraps ErrBusy. A group that does not exist is no error.
func (g *Group) Remove() error {
	// Without the wait, systemd would kill the processes: that is how it stops a scope.
	if err := g.waitEmpty(); err != nil {
		return err
	}
	// The library drops the paths that it has removed. A copy keeps this Group usable.
	man, err := manager.NewWithPaths(g.config, maps.Clone(g.paths))
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.Path(), err)
	}
	if err := man.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.Path(), err)
	}
	return g.removeOwnParent()
}

func (g *Group) waitEmpty() error {
	deadline := time.Now().Add(emptyWait)
	for pause := emptyPoll; ; pause *= 2 {
		pids, err := g.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w: %v: stop them first", g.Path(), ErrBusy, pids)
		}
		time.Sleep(pause)
	}
}

// removeOwnParent removes an empty parent. rmdir refuses one with other groups or processes.
func (g *Group) removeOwnParent() error {
	if g.own == "" {
		return nil
	}
	var errs []error
	for _, path := range g.paths {
		err := unix.Rmdir(filepath.Dir(path))
		switch err {
		case nil, unix.ENOENT, unix.EBUSY, unix.ENOTEMPTY:
		default:
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", filepath.Dir(path), err))
		}
	}
	return errors.Join(errs...)
}
