package domain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startGuest returns a driver with a guest that QEMU holds before its first instruction.
func startGuest(t *testing.T) (*Driver, guest) {
	t.Helper()
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	if _, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files); err != nil {
		t.Fatal(err)
	}
	return d, g
}

// define defines g and forgets it with the test.
func define(t *testing.T, d *Driver, g guest) {
	t.Helper()
	text, err := XML(g.Description)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Lifecycle.Define(t.Context(), text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
		defer cancel()
		if err := errors.Join(d.Lifecycle.Destroy(ctx, g.UUID), d.Lifecycle.Undefine(ctx, g.UUID)); err != nil {
			t.Error(err)
		}
	})
}

// bootGuest defines, starts and resumes g, waits for its greeting and returns
// QEMU's pid.
func bootGuest(t *testing.T, d *Driver, g guest) int {
	t.Helper()
	define(t, d, g)
	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Lifecycle.Resume(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, g, greeting)
	return pid
}

// awaitLog waits until the console's log holds text.
func awaitLog(t *testing.T, g guest, text string) {
	t.Helper()
	var log []byte
	for range 9000 {
		log, _ = os.ReadFile(g.ConsoleLog)
		if bytes.Contains(log, []byte(text)) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no %q on the console: %q", text, log)
}

// press sends a byte to the guest's console.
func press(t *testing.T, g guest, key string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", g.ConsoleSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, key); err != nil {
		t.Fatal(err)
	}
	return c
}

func wantState(t *testing.T, d *Driver, g guest, want State) {
	t.Helper()
	got, err := d.Observer.State(t.Context(), g.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("state is %+v, want %+v", got, want)
	}
}

func stopped(g guest) func(Event) bool {
	return func(e Event) bool { return e.UUID == g.UUID && e.Kind == EventStopped }
}

func TestLife(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	events, unsubscribe := d.Connection.Subscribe()
	defer unsubscribe()
	g := newGuest(t)

	if _, err := d.Observer.State(t.Context(), g.UUID); !errors.Is(err, ErrNotFound) {
		t.Fatalf("state before define: %v", err)
	}
	define(t, d, g)
	wantState(t, d, g, State{Status: StatusShutoff, Reason: ReasonNeverRan})
	if err := d.Lifecycle.Shutdown(t.Context(), g.UUID); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("shutdown before start: %v", err)
	}

	pid, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, d, g, State{Status: StatusPaused, Reason: ReasonUser, PID: pid})
	wantConfined(t, g, pid)
	if _, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files); !errors.Is(err, ErrRunning) {
		t.Fatalf("second start: %v", err)
	}
	for range 2 {
		if err := d.Lifecycle.Resume(t.Context(), g.UUID); err != nil {
			t.Fatal(err)
		}
	}
	awaitLog(t, g, greeting)
	wantState(t, d, g, State{Status: StatusRunning, PID: pid})

	for range 2 {
		if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
			t.Fatal(err)
		}
	}
	e := eventually(t, events, "stopped", stopped(g))
	if e.Reason != ReasonDestroyed {
		t.Errorf("stopped for %q", e.Reason)
	}
	wantState(t, d, g, State{Status: StatusShutoff, Reason: ReasonDestroyed})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("QEMU is still there: %v", err)
	}
	for range 2 {
		if err := d.Lifecycle.Undefine(t.Context(), g.UUID); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
}

// wantConfined checks what the kernel says of QEMU's rights.
func wantConfined(t *testing.T, g guest, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(status), "\n")
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d", g.UID),
		fmt.Sprintf("Gid:\t%d\t%[1]d\t%[1]d\t%[1]d", g.GID),
		"CapEff:\t0000000000000000",
		"CapPrm:\t0000000000000000",
		"Seccomp:\t2",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("QEMU's status has no line %q:\n%s", want, status)
		}
	}
}

func TestEnds(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	tests := []struct {
		name  string
		end   func(*testing.T, guest, int)
		event Reason
		state Reason
	}{
		{"guest powers off", func(t *testing.T, g guest, _ int) {
			press(t, g, keyOff)
		}, ReasonShutdown, ReasonShutdown},
		{"power button", func(t *testing.T, g guest, _ int) {
			if err := d.Lifecycle.Shutdown(t.Context(), g.UUID); err != nil {
				t.Fatal(err)
			}
		}, ReasonShutdown, ReasonShutdown},
		{"guest panics", func(t *testing.T, g guest, _ int) {
			press(t, g, keyPanic)
		}, ReasonCrashed, ReasonCrashed},
		{"QEMU is killed", func(t *testing.T, _ guest, pid int) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, ReasonFailed, ReasonCrashed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			events, unsubscribe := d.Connection.Subscribe()
			defer unsubscribe()
			g := newGuest(t)
			tt.end(t, g, bootGuest(t, d, g))
			if e := eventually(t, events, "stopped", stopped(g)); e.Reason != tt.event {
				t.Errorf("event says %q, want %q", e.Reason, tt.event)
			}
			wantState(t, d, g, State{Status: StatusShutoff, Reason: tt.state})
		})
	}
}

func TestConsoleAndReboot(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	pid := bootGuest(t, d, g)
	c := press(t, g, "x")
	echo := make([]byte, 1)
	if _, err := io.ReadFull(c, echo); err != nil || string(echo) != "x" {
		t.Fatalf("console gave %q, %v", echo, err)
	}
	c.Close()
	// The files are still there for the second boot, in the same QEMU.
	press(t, g, keyReboot)
	awaitLog(t, g, greeting+"x"+greeting)
	wantState(t, d, g, State{Status: StatusRunning, PID: pid})
}

func TestStartFails(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	delete(g.files, "boot-1")
	_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	if err == nil || !strings.Contains(err.Error(), g.Name) || !strings.Contains(err.Error(), "boot-1") {
		t.Fatalf("start without a file: %v", err)
	}
	wantState(t, d, g, State{Status: StatusShutoff, Reason: ReasonFailed})
}

func TestDomains(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	g.ContainerName = `a "strange" <name>`
	define(t, d, g)
	foreign := newGuest(t)
	text, err := XML(foreign.Description)
	if err != nil {
		t.Fatal(err)
	}
	define(t, d, foreign)
	text = text[:strings.Index(text, "<metadata>")] + text[strings.Index(text, "</metadata>")+11:]
	if err := d.Lifecycle.Define(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	got, err := d.Observer.Domains(t.Context())
	want := []Info{{
		UUID: g.UUID, Name: g.Name, ContainerID: g.ContainerID, ContainerName: g.ContainerName,
		PodNamespace: "default", PodName: "pod",
	}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestLibvirtdRestarts(t *testing.T) {
	daemon := startLibvirtd(t)
	d := startDriver(t)
	g, victim := newGuest(t), newGuest(t)
	pid, victimPID := bootGuest(t, d, g), bootGuest(t, d, victim)
	events, unsubscribe := d.Connection.Subscribe()
	defer unsubscribe()

	daemon.kill(t)
	for !errors.Is(stateErr(t, d, g), ErrUnavailable) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(victimPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	daemon.start(t)
	eventually(t, events, "resync", func(e Event) bool { return e.Kind == EventResync })
	wantState(t, d, g, State{Status: StatusRunning, PID: pid})
	// libvirtd reports a running domain until it looks for its monitor; no event reports the end.
	for {
		s, err := d.Observer.State(t.Context(), victim.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status == StatusShutoff {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	// Events flow on the new connection, too, once libvirtd has found the guest again, for which this waits.
	if err := d.Lifecycle.Resume(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	eventually(t, events, "stopped", stopped(g))
}

func stateErr(t *testing.T, d *Driver, g guest) error {
	t.Helper()
	_, err := d.Observer.State(t.Context(), g.UUID)
	return err
}

func TestLibvirtdHangs(t *testing.T) {
	daemon := startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	if err := daemon.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.Lifecycle.Start(ctx, g.UUID, g.files)
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	if err := daemon.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The start that was given up happens, or is about to; not after this:
	if err := d.Lifecycle.Destroy(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	state, err := d.Observer.State(t.Context(), g.UUID)
	if err != nil {
		t.Fatal(err)
	}
	// What libvirtd calls it depends on whether the start had come to its end.
	if state.Status != StatusShutoff || state.Reason != ReasonDestroyed && state.Reason != ReasonFailed {
		t.Errorf("state is %+v", state)
	}
}

func TestNoLibvirtd(t *testing.T) {
	d := NewDriver("qemu:///system?socket=/run/nothing", testRunDir, nil)
	if _, err := d.Observer.State(t.Context(), "x"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("state: %v", err)
	}
}
