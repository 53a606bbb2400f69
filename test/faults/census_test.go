//go:build faults

package faults

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
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

// asBefore returns an error that lists what was not there before.
func asBefore(before node.Census) func(context.Context) error {
	return func(ctx context.Context) error {
		return suite.SameAgain(ctx, before, 0)
	}
}

// The shim may have a few descriptors more or less than it had: connections of clients that were
// just closed, and three to libvirtd, of two descriptors each, that wait for calls. The runtime
// keeps threads that it needed once, and each connection has its goroutines.
const (
	spareFiles      = 12
	spareGoroutines = 20
	mostThreads     = 80
)

// size is what the shim holds.
type size struct{ files, goroutines int }

func shimSize(ctx context.Context) (size, error) {
	dir, err := shimProc()
	if err != nil {
		return size{}, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return size{}, err
	}
	goroutines, err := suite.Sample(ctx, "go_goroutines")
	return size{len(entries), int(goroutines)}, err
}

// noGrowth returns an error if the shim holds more than it did.
func noGrowth(before size) func(context.Context) error {
	return func(ctx context.Context) error {
		now, err := shimSize(ctx)
		if err != nil {
			return err
		}
		if now.files > before.files+spareFiles || now.goroutines > before.goroutines+spareGoroutines {
			return fmt.Errorf("the shim has %d open files and %d goroutines; it had %d and %d",
				now.files, now.goroutines, before.files, before.goroutines)
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

// discreet returns an error if the shim has logged a pod's cloud-init data.
func discreet(context.Context) error {
	for line := range strings.Lines(suite.LogTail(node.Shim, math.MaxInt)) {
		if strings.Contains(line, password) {
			return fmt.Errorf("the shim's log has a secret: %s", line)
		}
	}
	return nil
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
