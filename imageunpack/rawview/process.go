package rawview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killTime is how long a process may take to close its files before it is killed.
const killTime = 5 * time.Second

// Hide ends a view's process and removes its folder. One that isn't shown is no error.
func (v *Views) Hide(ctx context.Context, id string) error {
	if !ids.MatchString(id) {
		return fmt.Errorf("hide disk %q: not a name of a view", id)
	}
	pid, err := v.find(id)
	if err != nil {
		return err
	}
	v.mu.Lock()
	delete(v.watched, id)
	v.mu.Unlock()
	if pid != 0 {
		if err := end(ctx, pid); err != nil {
			return fmt.Errorf("end the process %d that shows disk %s: %w", pid, id, err)
		}
	}
	return os.RemoveAll(v.folder(id))
}

// Process is the process id of a view, 0 if none runs. Its end is told of from now on.
func (v *Views) Process(id string) (int, error) {
	pid, err := v.find(id)
	if pid != 0 {
		v.watch(id, pid)
	}
	return pid, err
}

func (v *Views) find(id string) (int, error) {
	text, err := os.ReadFile(filepath.Join(v.folder(id), pidName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the process of disk %s: %w", id, err)
	}
	number, born, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 || born == "" || birth(pid) != born {
		return 0, nil //nolint:nilerr // one that ended, or the number of a process that came later
	}
	return pid, nil
}

// List returns the views that have a folder, whether they are shown or not.
func (v *Views) List() ([]string, error) {
	entries, err := os.ReadDir(v.opts.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the disks that are shown: %w", err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, nil
}

// watch tells of the end of a view's process, unless it is hidden before.
func (v *Views) watch(id string, pid int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched[id] == pid {
		return
	}
	v.watched[id] = pid
	go func() {
		_ = awaitEnd(context.Background(), pid)
		v.mu.Lock()
		mine := v.watched[id] == pid
		if mine {
			delete(v.watched, id)
		}
		v.mu.Unlock()
		if mine {
			v.opts.Logger.Error("the process that shows a disk ended", "disk", id, "pid", pid)
			if v.opts.Ended != nil {
				v.opts.Ended(id)
			}
		}
	}()
}

// writePID notes which process this is: a number alone may be another's later. The file is there
// with all of its text, and isn't synced: after a reboot the process is gone.
func writePID(dir string) error {
	pid, path := os.Getpid(), filepath.Join(dir, pidName)
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, "%d %s\n", pid, birth(pid)), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// birth is when a process started, in the kernel's ticks (proc(5), stat); empty if it has ended.
func birth(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	f := strings.Fields(after)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

func alive(pid int) bool { return birth(pid) != "" }

// end ends a process that need not be a child.
func end(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, killTime)
		err = awaitEnd(limited, pid)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// awaitEnd waits for the end of a process. It holds no thread meanwhile.
func awaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "process")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Now()) })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
}
