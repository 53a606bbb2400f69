package vmtest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// Sample is a domain for a suite: one that no libvirtd knows yet.
type Sample struct {
	UUID, Name string
	// XML is its description; RAM, in bytes, is what the description says.
	XML string
	RAM int64
	// Files are the descriptors of its FD groups.
	Files map[string][]*os.File
}

// Libvirtd is what the suites of libvirt test: the parts of a driver.
type Libvirtd struct {
	Connection lifecycle.Connection
	Domains    lifecycle.Domains
	Observer   lifecycle.Observer
	Processes  lifecycle.Processes
	Memory     lifecycle.Memory
}

// TestDomains is the suite of libvirt's part in the life of a VM.
func TestDomains(t *testing.T, d Libvirtd, s Sample) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(d.Domains.Destroy(ctx, s.UUID), d.Domains.Undefine(ctx, s.UUID)); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	if err := d.Connection.Connected(ctx); err != nil {
		t.Fatal(err)
	}
	missingDomain(t, d, s)
	definedDomain(t, d, s)
	pid, err := d.Domains.Start(ctx, s.UUID, s.Files)
	if err != nil {
		t.Fatal(err)
	}
	pausedDomain(t, d, s, pid)
	runningDomain(t, d, s, pid)
	endedDomain(t, d, s, pid)
}

func missingDomain(t *testing.T, d Libvirtd, s Sample) {
	t.Helper()
	ctx := t.Context()
	_, stateErr := d.Observer.State(ctx, s.UUID)
	_, startErr := d.Domains.Start(ctx, s.UUID, nil)
	for call, err := range map[string]error{
		"State": stateErr, "Start": startErr, "Resume": d.Domains.Resume(ctx, s.UUID), "Shutdown": d.Domains.Shutdown(ctx, s.UUID),
	} {
		if !errors.Is(err, domain.ErrNotFound) {
			t.Errorf("%s of a missing domain: %v", call, err)
		}
	}
	for range 2 {
		if err := errors.Join(d.Domains.Destroy(ctx, s.UUID), d.Domains.Undefine(ctx, s.UUID)); err != nil {
			t.Errorf("ending a missing domain: %v", err)
		}
	}
}

func definedDomain(t *testing.T, d Libvirtd, s Sample) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		if err := d.Domains.Define(ctx, s.XML); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, d, s, domain.State{Status: domain.StatusShutoff, Reason: domain.ReasonNeverRan})
	for call, err := range map[string]error{"Resume": d.Domains.Resume(ctx, s.UUID), "Shutdown": d.Domains.Shutdown(ctx, s.UUID)} {
		if !errors.Is(err, domain.ErrNotRunning) {
			t.Errorf("%s of a domain that does not run: %v", call, err)
		}
	}
	if machine, err := d.Observer.MachineType(ctx, s.UUID); err != nil || !strings.HasPrefix(machine, "pc-") {
		t.Errorf("machine type %q, %v", machine, err)
	}
	all, err := d.Observer.Domains(ctx)
	if err != nil || !slices.ContainsFunc(all, func(i domain.Info) bool { return i.UUID == s.UUID && i.Name == s.Name }) {
		t.Errorf("domains %v, %v", all, err)
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if pid, err := d.Processes.AwaitProcess(soon, s.Name); !errors.Is(err, domain.ErrUnavailable) {
		t.Errorf("a domain that does not run has process %d, %v", pid, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := d.Domains.Start(gone, s.UUID, s.Files); err == nil {
		t.Error("a call without time starts a domain")
	}
}

func pausedDomain(t *testing.T, d Libvirtd, s Sample, pid int) {
	t.Helper()
	ctx := t.Context()
	wantState(t, d, s, domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser, PID: pid})
	if got, err := d.Processes.AwaitProcess(ctx, s.Name); err != nil || got != pid {
		t.Errorf("process %d, %v; Start returned %d", got, err, pid)
	}
	if _, err := d.Domains.Start(ctx, s.UUID, s.Files); !errors.Is(err, domain.ErrRunning) {
		t.Errorf("a second start: %v", err)
	}
}

func runningDomain(t *testing.T, d Libvirtd, s Sample, pid int) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		if err := d.Domains.Resume(ctx, s.UUID); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, d, s, domain.State{Status: domain.StatusRunning, PID: pid})
	if err := d.Domains.Shutdown(ctx, s.UUID); err != nil {
		t.Errorf("press the power button: %v", err)
	}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if err := d.Processes.AwaitEnd(soon, s.Name, pid); err == nil {
		t.Error("a domain that runs has ended")
	}
}

func endedDomain(t *testing.T, d Libvirtd, s Sample, pid int) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		if err := d.Domains.Destroy(ctx, s.UUID); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := d.Processes.AwaitEnd(ctx, s.Name, pid); err != nil {
			t.Error(err)
		}
	}
	if state, err := d.Observer.State(ctx, s.UUID); err != nil || state.Status != domain.StatusShutoff || state.PID != 0 {
		t.Errorf("after its end: %+v, %v", state, err)
	}
	for range 2 {
		if err := d.Domains.Undefine(ctx, s.UUID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Observer.State(ctx, s.UUID); !errors.Is(err, domain.ErrNotFound) {
		t.Errorf("after it was undefined: %v", err)
	}
}

func wantState(t *testing.T, d Libvirtd, s Sample, want domain.State) {
	t.Helper()
	if got, err := d.Observer.State(t.Context(), s.UUID); err != nil || got != want {
		t.Errorf("state %+v, %v; want %+v", got, err, want)
	}
}
