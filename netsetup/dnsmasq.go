package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// configName and pidName are files in the VM's folder.
const (
	configName = "dnsmasq.conf"
	pidName    = "dnsmasq.pid"
)

// killAfter is how long dnsmasq has to end by itself: it has nothing to save.
const killAfter = 2 * time.Second

func (s *Setup) folder(p Plan) string { return filepath.Join(s.dir, p.ID) }

// server describes the guest's dnsmasq. The path of its config is on the command line of no other
// process. dnsmasq binds its socket, goes into the background, and only then does the process that
// was started end. It reads its config and writes its pid file before it gives up root.
func (s *Setup) server(p Plan) supervise.Process {
	config := "--conf-file=" + filepath.Join(s.folder(p), configName)
	pidFile := filepath.Join(s.folder(p), pidName)
	return supervise.Process{
		Name: "dnsmasq", Program: s.dnsmasq, Args: []string{config, "--pid-file=" + pidFile},
		Daemon: true, PIDFile: pidFile, Argument: config, Grace: killAfter,
		Capabilities: capabilities(),
	}
}

// capabilities returns what dnsmasq needs to bind its sockets and to change its user. With CAP_CHOWN it would make that
// user the owner of its log, which is the node's /dev/null.
func capabilities() []uintptr {
	return []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETUID, unix.CAP_SETGID}
}

// Serve starts dnsmasq in the pod's namespace and returns its process id when dnsmasq is ready to
// answer. If dnsmasq runs already, Serve returns its id. dnsmasq outlives the caller, which may
// move it into the pod's cgroup. The id is 0 for a Plan that is not [Plan.Served].
func (s *Setup) Serve(ctx context.Context, p Plan) (pid int, err error) {
	if err := p.check(); err != nil || !p.Served() {
		return 0, err
	}
	server := s.server(p)
	if pid, err := server.Find(); err != nil || pid != 0 {
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
	err = within(p.Netns, func() (err error) {
		pid, err = server.Start(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("start dnsmasq in pod network %s: %w", p.Netns, portTaken(err))
	}
	s.log.DebugContext(ctx, "dnsmasq started", "netns", p.Netns, "pid", pid)
	return pid, nil
}

// Forget ends the VM's dnsmasq, so that the next one, which [Setup.Serve] starts, knows no client. A
// guest with a new DHCPv6 identifier would not get the address that dnsmasq holds for the old one.
// Forget reports whether it has ended dnsmasq. Without IPv6 it does nothing: DHCPv4 identifies the
// guest by its card alone.
func (s *Setup) Forget(ctx context.Context, p Plan) (bool, error) {
	if !slices.ContainsFunc(p.NICs, func(n NIC) bool { return n.managed() && n.IPv6.valid() }) {
		return false, nil
	}
	server := s.server(p)
	pid, err := server.Find()
	if err != nil || pid == 0 {
		return false, err
	}
	if err := server.End(ctx); err != nil {
		return false, err
	}
	return true, nil
}

func (s *Setup) writeConfig(p Plan) error {
	if err := os.MkdirAll(s.folder(p), 0o700); err != nil {
		return fmt.Errorf("create dnsmasq's folder: %w", err)
	}
	file := filepath.Join(s.folder(p), configName)
	if err := os.WriteFile(file, []byte(dhcpConfig(p)), 0o600); err != nil {
		return fmt.Errorf("write dnsmasq's config: %w", err)
	}
	return nil
}

// portTaken returns err as [ErrPortTaken] if that is what dnsmasq ended with.
func portTaken(err error) error {
	f, ok := errors.AsType[*supervise.Failure](err)
	if !ok || !strings.Contains(f.Output, "DHCP server socket: Address already in use") {
		return err
	}
	return fmt.Errorf("%w: %s", ErrPortTaken, f.Output)
}

// stop ends the guest's dnsmasq, waits until it is gone, and removes its files.
func (s *Setup) stop(ctx context.Context, p Plan) error {
	if err := s.server(p).End(ctx); err != nil {
		return err
	}
	for _, name := range []string{configName, pidName} {
		err := os.Remove(filepath.Join(s.folder(p), name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove dnsmasq's files: %w", err)
		}
	}
	return nil
}

// Watch waits until the guest's dnsmasq has ended, or ctx has. The error is nil when dnsmasq has ended
// or did not run. The caller then starts it again with [Setup.Serve]: the guest's lease, which never
// expires, stays valid. Watch takes no thread while it waits.
func (s *Setup) Watch(ctx context.Context, p Plan) error {
	server := s.server(p)
	pid, err := server.Find()
	if err != nil || pid == 0 {
		return err
	}
	return server.Wait(ctx, pid)
}
