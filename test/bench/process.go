package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one that runs in the node.
type process struct {
	pid, parent int
	name        string
	ticks       uint64 // of CPU time so far, see clockTick
}

// clockTick is how many of them are a second: Linux says 100 to programs on all machines.
const clockTick = 100

// processes are the descendants of a process, itself included.
func processes(root int) ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]process{}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		p, err := readProcess(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended while we looked
		}
		if err != nil {
			return nil, err
		}
		all[pid] = p
	}
	var found []process
	for pid, p := range all {
		for at := pid; at != 0; at = all[at].parent {
			if at == root {
				found = append(found, p)
				break
			}
		}
	}
	return found, nil
}

// readProcess reads /proc/PID/stat, see proc(5). The name, in parentheses, may hold anything.
func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("read process %d: no name in %q", pid, text)
	}
	// After the name: state, parent, …, and as 12th and 13th the time in user and kernel mode.
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 13 {
		return process{}, fmt.Errorf("read process %d: too short: %q", pid, text)
	}
	p := process{pid: pid, name: string(text[open+1 : end])}
	p.parent, err = strconv.Atoi(fields[1])
	for _, f := range fields[11:13] {
		n, parse := strconv.ParseUint(f, 10, 64)
		p.ticks, err = p.ticks+n, errors.Join(err, parse)
	}
	if err != nil {
		return p, fmt.Errorf("read process %d: %w", pid, err)
	}
	return p, nil
}

// shares returns how much of a core processes use for a time, in percent.
func shares(ctx context.Context, pids []int, span time.Duration) ([]float64, error) {
	before, err := ticks(pids)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	after, err := ticks(pids)
	if err != nil {
		return nil, err
	}
	wall := time.Since(begun).Seconds()
	var all []float64
	for i := range pids {
		all = append(all, 100*float64(after[i]-before[i])/clockTick/wall)
	}
	return all, nil
}

// ticks returns the processor time of processes so far.
func ticks(pids []int) (all []uint64, err error) {
	for _, pid := range pids {
		p, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, p.ticks)
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
