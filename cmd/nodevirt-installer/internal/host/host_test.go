package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// fake is a node's systemd with the setup's unit, which runs for two looks at it.
type fake struct {
	// output is what the command prints, failed its result.
	output string
	failed bool

	log     string // the file of the output
	state   string
	looks   int
	started [][]string
	shim    bool // the shim's unit exists
	// restarts counts those of the shim; drops says how many connections fail.
	restarts, drops int
}

func (f *fake) connect(context.Context) (Systemd, error) {
	if f.drops > 0 {
		f.drops--
		return nil, errors.New("connection refused")
	}
	return f, nil
}

func (f *fake) Close() {}

func (f *fake) ListUnitsByNamesContext(_ context.Context, units []string) ([]dbus.UnitStatus, error) {
	st := dbus.UnitStatus{Name: units[0], ActiveState: f.state}
	if f.state == "activating" {
		if f.looks++; f.looks > 2 {
			f.looks, f.state = 0, "inactive"
			if f.failed {
				f.state = "failed"
			}
		}
	}
	return []dbus.UnitStatus{st}, nil
}

func (f *fake) StartTransientUnitContext(_ context.Context, name, mode string, properties []dbus.Property, _ chan<- string) (int, error) {
	if f.state != "inactive" || name != setupUnit || mode != "fail" {
		return 0, errors.New("unit exists: " + f.state)
	}
	for _, p := range properties {
		switch p.Name {
		case "ExecStart":
			// systemd's type of the property: path, arguments, and whether to ignore failures.
			if got := p.Value.Signature().String(); got != "a(sasb)" {
				return 0, errors.New("ExecStart has the type " + got)
			}
			var commands []struct {
				Args             []string
				UncleanIsFailure bool // systemd's "ignore failures"
			}
			if text, err := json.Marshal(p.Value.Value()); err != nil || json.Unmarshal(text, &commands) != nil {
				return 0, errors.New("ExecStart cannot be read")
			}
			if commands[0].UncleanIsFailure {
				return 0, errors.New("failures are ignored")
			}
			f.started = append(f.started, commands[0].Args)
		case "StandardOutputFileToTruncate":
			f.log, _ = p.Value.Value().(string)
		}
	}
	f.state = "activating"
	return 1, os.WriteFile(f.log, []byte(f.output), 0o600)
}

func (f *fake) ResetFailedUnitContext(context.Context, string) error {
	if f.state != "failed" {
		return godbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	}
	f.state = "inactive"
	return nil
}

func (f *fake) TryRestartUnitContext(_ context.Context, name, _ string, _ chan<- string) (int, error) {
	if !f.shim || name != shimUnit {
		return 0, godbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	}
	f.restarts++
	return 1, nil
}

func newHost(t *testing.T) (*Host, *fake, *bytes.Buffer) {
	t.Helper()
	f, out := &fake{state: "inactive"}, &bytes.Buffer{}
	h := &Host{Dir: t.TempDir(), Connect: f.connect, Out: out, Poll: time.Millisecond}
	image := t.TempDir()
	for _, name := range []string{"nodevirt", "nodevirt-shim"} {
		if err := os.WriteFile(filepath.Join(image, name), []byte(name+" 1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		root **os.Root
		dir  string
	}{{&h.Programs, image}, {&h.Folder, h.Dir}} {
		root, err := os.OpenRoot(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		*r.root = root
	}
	return h, f, out
}

func TestRun(t *testing.T) {
	h, f, out := newHost(t)
	f.output = "Write the files\n"
	f.drops = 1 // systemd restarts
	if err := h.Run(t.Context(), "node", "install"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.started[0], " "); got != h.Dir+"/bin/nodevirt node install" || out.String() != f.output {
		t.Errorf("ran %q, printed %q", got, out)
	}
	f.output, f.failed = "Check\nnodevirt: this node cannot run VMs:\n  QEMU: missing; install it\n", true
	for range 2 { // the second one finds a unit that has failed
		err := h.Run(t.Context(), "node", "install")
		if want := "nodevirt node install: this node cannot run VMs:\n  QEMU: missing; install it"; err == nil || err.Error() != want {
			t.Errorf("error %v, not %q", err, want)
		}
	}
	f.output = "/opt/nodevirt/bin/nodevirt: error while loading shared libraries: libvirt.so.0: not found\n"
	if err := h.Run(t.Context(), "node", "install"); err == nil || !strings.Contains(err.Error(), "install libvirt") {
		t.Errorf("without libvirt: %v", err)
	}
}

// TestRunWaits: a command of a killed pod runs on, and ends before the next one begins.
func TestRunWaits(t *testing.T) {
	h, f, _ := newHost(t)
	f.state = "activating"
	if err := h.Run(t.Context(), "node", "install"); err != nil || len(f.started) != 1 {
		t.Errorf("%v: started %v", err, f.started)
	}
	f.state = "activating"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Run(ctx, "node", "install"); !errors.Is(err, context.Canceled) || len(f.started) != 1 {
		t.Errorf("%v: started %v", err, f.started)
	}
}

// TestRunWithoutSystemd reports a systemd that stays away.
func TestRunWithoutSystemd(t *testing.T) {
	h, f, _ := newHost(t)
	f.drops = 1 << 30
	synctest.Test(t, func(t *testing.T) {
		if err := h.Run(t.Context(), "node", "install"); err == nil || !strings.Contains(err.Error(), "connect to systemd: connection refused") {
			t.Error(err)
		}
	})
}

// TestOutputIsBounded: the end of a long output is read.
func TestOutputIsBounded(t *testing.T) {
	h, f, out := newHost(t)
	f.output = strings.Repeat("x", 2*maxOutput) + "\nnodevirt: broken\n"
	f.failed = true
	if err := h.Run(t.Context(), "node", "install"); err == nil || err.Error() != "nodevirt node install: broken" || out.Len() > maxOutput {
		t.Errorf("%d bytes of output, error %.100v", out.Len(), err)
	}
}

// TestPlace: the node has the image's programs, and a shim that ran others restarts, even if the first
// try was interrupted.
func TestPlace(t *testing.T) {
	h, f, _ := newHost(t)
	f.shim = true
	place := func(restarts int) {
		t.Helper()
		if err := h.Place(t.Context()); err != nil || f.restarts != restarts {
			t.Errorf("%v: %d restarts of the shim, not %d", err, f.restarts, restarts)
		}
		for _, name := range []string{"nodevirt", "nodevirt-shim"} {
			want, err := h.Programs.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Folder.ReadFile("bin/" + name)
			info, statErr := h.Folder.Stat("bin/" + name)
			if err != nil || statErr != nil || !bytes.Equal(got, want) || info.Mode() != 0o755 {
				t.Errorf("%s: %q, %v, %v", name, got, err, statErr)
			}
		}
	}
	place(0)
	place(0)
	upgrade := func(text string) {
		t.Helper()
		if err := h.Programs.WriteFile("nodevirt-shim", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	upgrade("nodevirt-shim 2")
	place(1)
	place(1)
	upgrade("nodevirt-shim 3")
	f.drops = 1
	if err := h.Place(t.Context()); err == nil {
		t.Error("a restart without systemd gave no error")
	}
	place(2)
	f.shim = false // uninstalled
	upgrade("nodevirt-shim 4")
	place(2)

	if err := h.Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(h.Dir); err != nil || len(left) > 0 {
		t.Errorf("left on the node: %v, %v", left, err)
	}
}
