package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Find returns the id of the process, whichever shim started it, and 0 if it does not run.
func (p Process) Find() (int, error) {
	text, err := os.ReadFile(p.PIDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", p.Name, err)
	}
	number, born, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 || !p.matches(pid, born) {
		return 0, nil //nolint:nilerr // a file half written, or the id of a later process
	}
	return pid, nil
}

// matches reports whether the process that has this id now is the one described.
func (p Process) matches(pid int, born string) bool {
	if p.Argument != "" {
		return hasArgument(pid, p.Argument)
	}
	return born != "" && startTime(pid) == born
}

// is reports whether pid is still the process described.
func (p Process) is(pid int) bool {
	found, err := p.Find()
	return err == nil && found == pid
}

// WritePID writes the id and the start time of the calling process to a pid file. A reader finds the
// whole text or no file. The file isn't synced: after a reboot the process is gone.
func WritePID(path string) error {
	pid := os.Getpid()
	if err := os.WriteFile(path+".new", fmt.Appendf(nil, "%d %s\n", pid, startTime(pid)), 0o600); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// hasArgument reports whether a process has an argument. A zombie has none.
func hasArgument(pid int, argument string) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && slices.ContainsFunc(bytes.Split(cmdline, []byte{0}), func(arg []byte) bool {
		return string(arg) == argument
	})
}

// startTime returns when a process started, in the kernel's ticks since boot (field 22 of
// /proc/PID/stat, proc(5)), and "" if it has ended. A process whose first thread alone has ended is
// a zombie with further threads: so is one for a moment when another thread executes a program.
func startTime(pid int) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	// The command's name, in parentheses, may have spaces and parentheses in it.
	_, after, _ := strings.Cut(string(text[max(0, bytes.LastIndexByte(text, ')')):]), " ")
	fields := strings.Fields(after) // from field 3, the state, on
	if len(fields) < 20 {
		return ""
	}
	if state, threads := fields[0], fields[17]; state == "X" || state == "Z" && threads <= "1" {
		return ""
	}
	return fields[19]
}
