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

// Processes finds and watches the QEMU processes of domains. It does not need libvirtd.
type Processes struct{ runDir string }

// AwaitProcess waits for the QEMU of a domain during a [Lifecycle.Start], and returns
// its process id. By then QEMU has opened the descriptors and taps of its domain.
// libvirtd still has to connect to it before Start returns.
func (p *Processes) AwaitProcess(ctx context.Context, name string) (int, error) {
	// This takes tens of milliseconds; under load, seconds.
	for wait := time.Millisecond; ; wait = min(wait*5/4, 50*time.Millisecond) {
		if pid, err := p.pid(name); err == nil {
			return pid, nil
		}
		select {
		case <-ctx.Done():
			return 0, expired(ctx, "await the process of", "domain "+name)
		case <-time.After(wait):
		}
	}
}

// pid returns the process id of a running domain's QEMU. It reads the file that
// libvirtd writes; libvirt's API does not report the id. QEMU inherits that file
// open for writing, so a guest that has compromised its QEMU could write any
// number. So the process's arguments must be the domain's too, which such a guest
// can forge only for its own process.
func (p *Processes) pid(name string) (int, error) {
	path := filepath.Join(p.runDir, "qemu", name+".pid")
	text, err := readHead(path, maxPID)
	if err != nil {
		return 0, fmt.Errorf("find QEMU of domain %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("find QEMU of domain %s: %s contains %q instead of a process id", name, path, text)
	}
	args, err := readCmdline(pid)
	if err != nil {
		return 0, fmt.Errorf("find QEMU of domain %s: %w", name, err)
	}
	if !isGuest(args, name) {
		return 0, fmt.Errorf("find QEMU of domain %s: %s contains %d, which is another process",
			name, path, pid)
	}
	return pid, nil
}

const (
	// maxPID is longer than a process id and a newline.
	maxPID = 32
	// maxCmdline is enough for the beginning of QEMU's command line, which identifies the domain. A
	// process can make its command line as long as its memory.
	maxCmdline = 64 << 10
)

func readCmdline(pid int) ([]byte, error) {
	return readHead(fmt.Sprintf("/proc/%d/cmdline", pid), maxCmdline)
}

// readHead reads the beginning of a file, whose length a guest may control.
func readHead(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// IsQEMU reports whether a process is the QEMU that libvirtd has started for a domain.
func IsQEMU(pid int, name string) bool {
	args, err := readCmdline(pid)
	return err == nil && isGuest(args, name)
}

// isGuest reports whether a command line from /proc is that of the QEMU that
// libvirtd has started for a domain.
func isGuest(cmdline []byte, name string) bool {
	return slices.ContainsFunc(bytes.Split(cmdline, []byte{0}), func(arg []byte) bool {
		guest, _, _ := strings.Cut(string(arg), ",")
		return guest == "guest="+name
	})
}
