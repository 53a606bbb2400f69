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

// ErrBusy says that a group still holds processes.
var ErrBusy = errdefs.ErrFailedPrecondition.WithMessage("cgroup still holds processes")

const (
	// emptyWait bounds how long Remove waits for processes that were just killed to go.
	emptyWait = 2 * time.Second
	// emptyPoll is the first pause between two looks; each is twice the one before.
	emptyPoll = 2 * time.Millisecond
)

// Remove removes the group, and nodevirt's own parent of it when that is empty. It kills nothing:
// when processes are left after two seconds the error wraps ErrBusy. A group that does not exist
// counts as removed.
func (g *Group) Remove() error {
	// The wait matters for more than order: systemd stops a scope by killing what is in it.
	if err := g.waitEmpty(); err != nil {
		return err
	}
	// The library forgets the paths that it has removed, and this Group should stay usable.
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

// removeOwnParent leaves a parent that holds other groups or processes: rmdir refuses those.
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
