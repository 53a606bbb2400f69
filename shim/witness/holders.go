package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is a process of a VM that has a block device open.
type Holder struct {
	Process
	// Writes is true if the process can write to the device.
	Writes bool
}

// String names the process, and the VM that it is of.
func (h Holder) String() string {
	text := fmt.Sprintf("process %d", h.PID)
	if h.Domain != "" {
		text += " of domain " + h.Domain
	}
	if h.Container != "" {
		text += ", container " + h.Container
	}
	return text
}

// Holders returns the processes of VMs' users that have a block device open, by whichever node of the device.
// A number is [unix.Stat_t]'s Rdev.
func (n Node) Holders(device uint64) ([]Holder, error) {
	all, err := n.Processes()
	if err != nil {
		return nil, err
	}
	var found []Holder
	for _, p := range all {
		holds, writes, err := opens(p.PID, device)
		if err != nil {
			return nil, fmt.Errorf("list the files of process %d: %w", p.PID, err)
		}
		if holds {
			found = append(found, Holder{p, writes})
		}
	}
	return found, nil
}

// opens reports whether a process has a block device open. A process whose first thread has ended shows its
// files with the other threads.
func opens(pid int, device uint64) (holds, writes bool, err error) {
	tasks, err := filepath.Glob(filepath.Join(proc, strconv.Itoa(pid), "task", "*"))
	if err != nil {
		return false, false, err
	}
	for _, task := range tasks {
		files, err := os.ReadDir(filepath.Join(task, "fd"))
		if ended(err) {
			continue
		}
		if err != nil {
			return holds, writes, err
		}
		for _, f := range files {
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(task, "fd", f.Name()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != device {
				continue // closed meanwhile, or another file
			}
			holds = true
			writes = writes || !readOnly(filepath.Join(task, "fdinfo", f.Name()))
		}
		if len(files) > 0 {
			return holds, writes, nil // threads share their files
		}
	}
	return holds, writes, nil
}

// readOnly reports whether a descriptor was opened for reading alone. One that cannot be read counts as one
// for writing.
func readOnly(path string) bool {
	text, err := head(path, maxStatus)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(value), 8, 64)
			return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
		}
	}
	return false
}
