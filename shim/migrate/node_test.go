package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// end is a node with a libvirtd, and what this test's VM has there.
type end struct {
	*domain.Lifecycle
	*domain.Observer

	node    *node.Node
	dir     string // of the VM
	id      uuid.UUID
	uid     uint32
	overlay string
	files   map[string][]*os.File
	xml     string
	records string
	// live lets the guest run while it is copied, at bandwidth MiB a second.
	live      bool
	bandwidth uint64
}

// newEnd starts a node. Both ends have the disk's base at the same content.
func newEnd(t *testing.T, id uuid.UUID, uid uint32) *end {
	t.Helper()
	n := node.ForTest(t, node.Options{Components: []string{node.Libvirtd}})
	d := domain.NewDriver(n.LibvirtURI(), filepath.Join(n.Dir(), "run", "libvirt"), slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Connection.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	within, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	if err := d.Connection.Connected(within); err != nil {
		t.Fatal(err)
	}
	e := &end{Lifecycle: d.Lifecycle, Observer: d.Observer, node: n, dir: filepath.Join(n.Dir(), "vm"), id: id, uid: uid}
	e.makeFiles(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		_ = e.Destroy(ctx, id.String())
		_ = e.Undefine(ctx, id.String())
	})
	return e
}

func (e *end) makeFiles(t *testing.T) {
	t.Helper()
	e.records = filepath.Join(e.dir, "record")
	for _, dir := range []string{e.dir, e.records} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	kernel, err := guest.TinyKernel(t.Context(), e.node.GuestOptions())
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"vmlinuz": kernel.Image, "initrd": kernel.Initrd} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(e.dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Join(e.dir, "base")
	e.overlay = filepath.Join(e.dir, "overlay")
	if err := os.WriteFile(base, bytes.Repeat([]byte("base"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, e.overlay).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	e.files = map[string][]*os.File{}
	for group, file := range map[string]struct {
		path string
		flag int
	}{"disk-0": {e.overlay, os.O_RDWR}, "disk-1": {base, os.O_RDONLY}} {
		f, err := os.OpenFile(file.path, file.flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		e.files[group] = []*os.File{f}
	}
	e.xml, err = domain.XML(e.describe())
	if err != nil {
		t.Fatal(err)
	}
}

func (e *end) describe() domain.Description {
	layer := func(format, path, group string) domain.Layer {
		return domain.Layer{Format: format, Path: path, FDGroup: group}
	}
	return domain.Description{
		Name: "vm", UUID: e.id.String(), ContainerID: "c-" + e.node.Name(), PodNamespace: "default", PodName: "pod", ContainerName: "vm",
		Spec: vmspec.Spec{
			CPU: vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 128 << 20, Machine: "q35",
			Disks:    []vmspec.Disk{{Name: "disk", Bus: vmspec.BusVirtio, Target: "vda"}},
			Firmware: vmspec.Firmware{Kernel: &vmspec.Kernel{Args: guest.Cmdline}},
			RNG:      true, Balloon: true,
		},
		Accelerator: domain.TCG, Emulator: "/usr/bin/qemu-system-x86_64", UID: e.uid, GID: e.uid,
		Disks: []domain.Disk{{Layers: []domain.Layer{
			layer("qcow2", e.overlay, "disk-0"), layer("raw", filepath.Join(e.dir, "base"), "disk-1"),
		}}},
		ConsoleSocket: e.console(), ConsoleLog: filepath.Join(e.dir, "console.log"),
		Kernel: filepath.Join(e.dir, "vmlinuz"), Initrd: filepath.Join(e.dir, "initrd"),
	}
}

func (e *end) console() string { return filepath.Join(e.dir, "console") }

func (e *end) vm() migrate.VM {
	return migrate.VM{
		Libvirtd: filepath.Join(e.node.Dir(), "run", "libvirt", "libvirt-sock"), Name: "vm", UUID: e.id, UID: e.uid, GID: e.uid,
		Sockets: migrate.Sockets{Dir: filepath.Join(e.dir, "migration")}, CopyDisks: true, Disks: []string{"vda"}, Domains: e,
		Live: e.live, Bandwidth: e.bandwidth,
	}
}

// running reports whether libvirtd says that the guest runs.
func (e *end) running(t *testing.T) bool {
	t.Helper()
	s, err := e.State(t.Context(), e.id.String())
	return err == nil && s.Status == domain.StatusRunning
}

// shell is the guest's console.
type shell struct {
	conn net.Conn
	mu   sync.Mutex
	text bytes.Buffer
}

func (e *end) shell(t *testing.T) *shell {
	t.Helper()
	conn, err := net.Dial("unix", e.console())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &shell{conn: conn}
	go func() { _, _ = io.Copy(s, conn) }()
	return s
}

func (s *shell) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// run runs a command in the guest and returns its output.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	s.mu.Lock()
	s.text.Reset()
	s.mu.Unlock()
	// The echo of the command has quotes where its output has none.
	if _, err := fmt.Fprintf(s.conn, "echo B''EGIN; %s; echo E''ND\n", command); err != nil {
		t.Fatal(err)
	}
	var text string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		text = strings.ReplaceAll(s.text.String(), "\r", "")
		s.mu.Unlock()
		_, after, begun := strings.Cut(text, "BEGIN\n")
		output, _, ended := strings.Cut(after, "END\n")
		if begun && ended {
			return strings.TrimSpace(output)
		}
	}
	t.Fatalf("%q in the guest: %q", command, text)
	return ""
}

// boot starts the guest and waits for it.
func (e *end) boot(t *testing.T) {
	t.Helper()
	if err := e.Define(t.Context(), e.xml); err != nil {
		t.Fatal(err)
	}
	// Not Start, which finds no process of another PID namespace.
	release, err := e.Associate(t.Context(), e.id.String(), e.files)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := e.node.Output(t.Context(), "virsh", "start", "vm"); err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		log, _ := os.ReadFile(filepath.Join(e.dir, "console.log"))
		if bytes.Contains(log, []byte("nodevirt guest: up")) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the guest does not start")
}
