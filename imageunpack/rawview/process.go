package rawview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/supervise"
)

// killTime is how long a process may take to close its files.
const killTime = 5 * time.Second

// Hide ends a view's process and removes its folder, if they exist.
func (v *Views) Hide(ctx context.Context, id string) error {
	if !ids.MatchString(id) {
		return fmt.Errorf("hide disk %q: not a valid name of a view", id)
	}
	v.mu.Lock()
	delete(v.watched, id)
	v.mu.Unlock()
	if err := v.process(id).End(ctx); err != nil {
		return fmt.Errorf("hide disk %s: %w", id, err)
	}
	return os.RemoveAll(v.folder(id))
}

// Process returns the id of a view's process, and 0 if none runs. From then on, Views calls
// Options.Ended at the end of the process.
func (v *Views) Process(id string) (int, error) {
	pid, err := v.process(id).Find()
	if pid != 0 {
		v.watch(id, pid)
	}
	return pid, err
}

// process describes the process of a view, as far as needed to find and to end it.
func (v *Views) process(id string) supervise.Process {
	return supervise.Process{
		Name: "qemu-storage-daemon", PIDFile: filepath.Join(v.folder(id), pidName), Grace: killTime,
	}
}

// List returns the views that have a folder, with or without a process.
func (v *Views) List() ([]string, error) {
	entries, err := os.ReadDir(v.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list views: %w", err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, nil
}

// watch reports the end of a view's process, unless the view is hidden before.
func (v *Views) watch(id string, pid int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched[id] == pid {
		return
	}
	v.watched[id] = pid
	go func() {
		_ = v.process(id).Wait(context.Background(), pid)
		v.mu.Lock()
		mine := v.watched[id] == pid
		if mine {
			delete(v.watched, id)
		}
		v.mu.Unlock()
		if mine {
			v.opts.Logger.Error("the process of a raw view ended", "disk", id, "pid", pid)
			if v.opts.Ended != nil {
				v.opts.Ended(id)
			}
		}
	}()
}
