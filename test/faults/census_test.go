//go:build faults

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/test/node"
)

// convergence is how long a node may take until all is as it should be.
const convergence = 10 * time.Second

// converge asks until there is no error any more.
func converge(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, convergence)
	defer cancel()
	var last error // but for that of the end of ctx itself
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", convergence, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// asBefore tells what there is that was not there before.
func asBefore(before node.Census) func(context.Context) error {
	return func(ctx context.Context) error {
		return suite.SameAgain(ctx, before, 0)
	}
}

// The shim may have a few descriptors more or less than it had: connections of clients that were
// just closed, and three to libvirtd, of two descriptors each, that wait for calls. The runtime keeps threads that it needed once.
const (
	spareFiles  = 12
	mostThreads = 80
)

// shimFiles counts the shim's descriptors.
func shimFiles() (int, error) {
	dir, err := shimProc()
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	return len(entries), err
}

// noGrowth tells if the shim has more open than it had.
func noGrowth(files int) func(context.Context) error {
	return func(context.Context) error {
		now, err := shimFiles()
		if err != nil {
			return err
		}
		if now > files+spareFiles {
			return fmt.Errorf("the shim has %d open files; it had %d", now, files)
		}
		dir, err := shimProc()
		if err != nil {
			return err
		}
		tasks, err := os.ReadDir(filepath.Join(dir, "task"))
		if err != nil {
			return err
		}
		if len(tasks) > mostThreads {
			return fmt.Errorf("the shim has %d threads", len(tasks))
		}
		return nil
	}
}

// shimProc is the shim's folder in /proc, as the machine sees it.
func shimProc() (string, error) {
	pid, err := pidOf(node.Shim)
	return fmt.Sprintf("/proc/%d/root/proc/%d", suite.PID(), pid), err
}

// pidOf is a component's process, as the node sees it.
func pidOf(component string) (int, error) {
	all, err := suite.Components()
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Name == component && !s.Ended {
			return s.PID, nil
		}
	}
	return 0, fmt.Errorf("%s does not run", component)
}
