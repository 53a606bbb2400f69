package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Kill kills all processes of the group with SIGKILL, and returns when none is left. It fails if some
// remain after two seconds. It changes no other group: [Open] names only a VM's own. A group that does not
// exist is no error.
func (g *Group) Kill() error {
	if err := errors.Join(g.thaw(), g.killAll()); err != nil {
		return fmt.Errorf("kill the processes of cgroup %s: %w", g.Path(), err)
	}
	deadline := time.Now().Add(emptyWait)
	for pause := emptyPoll; ; pause *= 2 {
		pids, err := g.PIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill the processes of cgroup %s: %w: %v: they do not end, perhaps because a disk does not answer",
				g.Path(), ErrBusy, pids)
		}
		for _, pid := range pids {
			if err := g.kill(pid); err != nil {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, g.Path(), err)
			}
		}
		time.Sleep(pause)
	}
}

// thaw lets the processes of a frozen group on v1 run, since otherwise they would not end.
func (g *Group) thaw() error {
	if g.paths["freezer"] == "" {
		return nil
	}
	return writeIfThere(filepath.Join(g.paths["freezer"], "freezer.state"), string(cgroups.Thawed))
}

// killAll has the kernel kill all processes at once, those too that a process is just forking. v1 and
// kernels before 5.14 have no file for it.
func (g *Group) killAll() error {
	if g.paths[""] == "" {
		return nil
	}
	return writeIfThere(filepath.Join(g.paths[""], "cgroup.kill"), "1")
}

func writeIfThere(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// kill kills a process if it still is in the group: another process may have its number by now.
func (g *Group) kill(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	pids, err := g.PIDs()
	if err != nil || !slices.Contains(pids, pid) {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}
