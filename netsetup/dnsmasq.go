package netsetup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// configName and pidName are files in the machine's folder.
const (
	configName = "dnsmasq.conf"
	pidName    = "dnsmasq.pid"
)

func (s *Setup) folder(p Plan) string { return filepath.Join(s.dir, p.ID) }

// configFlag is on the command line of this machine's dnsmasq and of no other process.
func (s *Setup) configFlag(p Plan) string {
	return "--conf-file=" + filepath.Join(s.folder(p), configName)
}

// Serve starts dnsmasq in the pod's namespace and returns its pid when it is ready to
// answer. It outlives the caller. If it runs already, its pid is returned. The
// caller may move it into the pod's cgroup. The pid is 0 for a Plan that is not [Plan.Served].
func (s *Setup) Serve(ctx context.Context, p Plan) (pid int, err error) {
	if err := p.check(); err != nil || !p.Served() {
		return 0, err
	}
	if pid, err := s.findServer(p); err != nil || pid != 0 {
		return pid, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, s.stop(ctx, p))
		}
	}()
	if err := s.writeConfig(p); err != nil {
		return 0, err
	}
	if err := within(p.Netns, func() error { return s.startServer(ctx, p) }); err != nil {
		return 0, fmt.Errorf("start dnsmasq in pod network %s: %w", p.Netns, err)
	}
	if pid, err = s.findServer(p); err != nil {
		return 0, err
	}
	if pid == 0 {
		return 0, fmt.Errorf("dnsmasq for pod network %s ended after its start", p.Netns)
	}
	s.log.DebugContext(ctx, "dnsmasq started", "netns", p.Netns, "pid", pid)
	return pid, nil
}

// Forget ends the machine's dnsmasq, so that the one which [Setup.Serve] starts in its place knows no
// client: a guest that has made itself a new DHCPv6 identifier would not get the address that its old
// one holds. It tells whether it has; where there is no IPv6 it has nothing to do, since DHCPv4 goes by
// the card alone.
func (s *Setup) Forget(ctx context.Context, p Plan) (bool, error) {
	if !slices.ContainsFunc(p.NICs, func(n NIC) bool { return n.managed() && n.IPv6.valid() }) {
		return false, nil
	}
	pid, err := s.findServer(p)
	if err != nil || pid == 0 {
		return false, err
	}
	if err := s.stopServer(ctx, pid, p); err != nil {
		return false, fmt.Errorf("end dnsmasq %d: %w", pid, err)
	}
	return true, nil
}

func (s *Setup) writeConfig(p Plan) error {
	if err := os.MkdirAll(s.folder(p), 0o700); err != nil {
		return fmt.Errorf("make folder for dnsmasq: %w", err)
	}
	file := filepath.Join(s.folder(p), configName)
	if err := os.WriteFile(file, []byte(dhcpConfig(p)), 0o600); err != nil {
		return fmt.Errorf("write config of dnsmasq: %w", err)
	}
	return nil
}

// startServer runs in the pod's namespace. dnsmasq binds its socket, goes into the
// background, and only then does the process that we started end. It reads its config and
// writes its pid before it gives up root.
func (s *Setup) startServer(ctx context.Context, p Plan) error {
	cmd := exec.CommandContext(ctx, s.dnsmasq, s.configFlag(p),
		"--pid-file="+filepath.Join(s.folder(p), pidName))
	cmd.Env = []string{"LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Stderr ends when the one in the background has started: also if ctx ends in between,
	// its pid file is there when Run returns.
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // "signal: killed" tells less
	}
	if err != nil && strings.Contains(stderr.String(), "DHCP server socket: Address already in use") {
		err = ErrPortTaken
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", s.dnsmasq, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// findServer returns the pid of this machine's dnsmasq, 0 if none runs.
func (s *Setup) findServer(p Plan) (int, error) {
	text, err := os.ReadFile(filepath.Join(s.folder(p), pidName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pid of dnsmasq: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 || !s.isServer(pid, p) {
		return 0, nil //nolint:nilerr // a file half written, or the number of a process that came later
	}
	return pid, nil
}

// isServer says whether pid is this machine's dnsmasq. It is not for a zombie, whose
// command line is empty.
func (s *Setup) isServer(pid int, p Plan) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		if string(arg) == s.configFlag(p) {
			return true
		}
	}
	return false
}
