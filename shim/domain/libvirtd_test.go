package domain

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/needs"
)

const (
	testURI    = "qemu:///system?socket=/run/libvirt/libvirt-sock"
	testRunDir = "/run/libvirt"
	libvirtLog = "/var/log/libvirt/libvirtd.log"
)

// libvirtdConf and qemuConf are what the package comment asks for.
const libvirtdConf = `
host_uuid = "3f0c2a52-5c8a-4a40-8b4b-0c7d6a1f2e11"
unix_sock_dir = "/run/libvirt"
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
max_workers = 50
log_level = 3
log_filters = "4:util.netdev"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
`

const qemuConf = `
stdio_handler = "file"
cgroup_controllers = []
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
seccomp_sandbox = 1
`

// libvirtd is a libvirtd of the test's own.
type libvirtd struct {
	cmd *exec.Cmd
}

// configure is done once: the second libvirtd of a test run finds the
// capabilities that the first has cached.
var configure = sync.OnceValue(func() error {
	for _, dir := range []string{"/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(libvirtLog), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"libvirtd.conf": libvirtdConf, "qemu.conf": qemuConf} {
		if err := os.WriteFile("/etc/libvirt/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
})

// startLibvirtd starts a libvirtd that ends with the test.
func startLibvirtd(t *testing.T) *libvirtd {
	t.Helper()
	needs.Parts(t, "root, libvirtd, QEMU")
	if err := configure(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(libvirtLog, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &libvirtd{}
	l.start(t)
	t.Cleanup(func() {
		l.kill(t)
		if t.Failed() {
			text, _ := os.ReadFile(libvirtLog)
			t.Logf("libvirtd's log:\n%s", text)
		}
	})
	return l
}

func (l *libvirtd) start(t *testing.T) {
	t.Helper()
	l.cmd = exec.Command("libvirtd", "-f", "/etc/libvirt/libvirtd.conf", "-p", "/run/libvirt/libvirtd.pid")
	l.cmd.Env = append(os.Environ(), "LC_ALL=C")
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill leaves QEMU processes behind, as a crash of libvirtd does.
func (l *libvirtd) kill(t *testing.T) {
	t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		t.Error("kill libvirtd:", err)
	}
	_ = l.cmd.Wait() // only reports the signal
}

// startDriver starts a driver that ends with the test, and waits for its
// connection.
func startDriver(t *testing.T) *Driver {
	t.Helper()
	d := NewDriver(testURI, testRunDir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	// The test's own clean-up still needs the connection, so not t.Context() alone.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Connection.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("run:", err)
		}
	})
	connected(t, d)
	return d
}

func connected(t *testing.T, d *Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := d.Connection.Connected(ctx); err != nil {
		t.Fatal(err)
	}
}

// eventually is the next event that want accepts.
func eventually(t *testing.T, events <-chan Event, what string, want func(Event) bool) Event {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	var seen string
	for {
		select {
		case e := <-events:
			if want(e) {
				return e
			}
			seen += fmt.Sprintf("\n%+v", e)
		case <-deadline:
			t.Fatalf("no event %s; seen:%s", what, seen)
		}
	}
}
