package domain

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AwaitProcess waits for QEMU of a domain that a [Driver.Start] is about to
// bring up, and returns its process id. Then QEMU has the descriptors and taps
// of its machine open; libvirtd still has to talk with it, and Start to return.
func (d *Driver) AwaitProcess(ctx context.Context, name string) (int, error) {
	// It takes tens of milliseconds; under load, seconds.
	for wait := time.Millisecond; ; wait = min(wait*5/4, 50*time.Millisecond) {
		if pid, err := d.pid(name); err == nil {
			return pid, nil
		}
		select {
		case <-ctx.Done():
			return 0, expired(ctx, "await the process of", "domain "+name)
		case <-time.After(wait):
		}
	}
}

// pid is the process id of a running domain's QEMU, from the file that
// libvirtd writes; libvirt's API does not tell it. QEMU inherits that file open
// for writing, so that a guest that has taken its QEMU over could put any
// number there. The process must therefore be the domain's by its arguments,
// too, which such a guest can forge for its own process alone.
func (d *Driver) pid(name string) (int, error) {
	path := filepath.Join(d.runDir, "qemu", name+".pid")
	text, err := readHead(path, maxPID)
	if err != nil {
		return 0, fmt.Errorf("find QEMU of domain %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("find QEMU of domain %s: %s holds %q, no process id", name, path, text)
	}
	args, err := readCmdline(pid)
	if err != nil {
		return 0, fmt.Errorf("find QEMU of domain %s: %w", name, err)
	}
	if !isGuest(args, name) {
		return 0, fmt.Errorf("find QEMU of domain %s: %s names process %d, which is not it",
			name, path, pid)
	}
	return pid, nil
}

const (
	// maxPID is more than a process id and its newline.
	maxPID = 32
	// maxCmdline is more than the begin of QEMU's command line, which says whose it is. A process can
	// make its own as long as its memory is.
	maxCmdline = 64 << 10
)

func readCmdline(pid int) ([]byte, error) {
	return readHead(fmt.Sprintf("/proc/%d/cmdline", pid), maxCmdline)
}

// readHead reads the begin of a file, of which a guest may say how long it is.
func readHead(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// isGuest reports whether a command line, as in /proc, is that of the QEMU
// that libvirtd has started for a domain.
func isGuest(cmdline []byte, name string) bool {
	return slices.ContainsFunc(bytes.Split(cmdline, []byte{0}), func(arg []byte) bool {
		guest, _, _ := strings.Cut(string(arg), ",")
		return guest == "guest="+name
	})
}
