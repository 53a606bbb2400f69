package vmtest

import (
	"errors"
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// TestMemory is the suite of guests' memory. The domain is one that TestDomains
// takes; its guest need not release memory.
func TestMemory(t *testing.T, d Libvirtd, s Sample) {
	t.Helper()
	ctx := t.Context()
	if err := d.Domains.Define(ctx, s.XML); err != nil {
		t.Fatal(err)
	}
	if err := d.Memory.SetMemory(ctx, s.UUID, s.RAM/2); !errors.Is(err, domain.ErrNotRunning) {
		t.Errorf("memory of a domain that does not run: %v", err)
	}
	if _, err := d.Domains.Start(ctx, s.UUID, s.Files); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Memory.Memory(ctx, s.UUID); err != nil || got != s.RAM {
		t.Errorf("a guest that starts has %d, %v; want %d", got, err, s.RAM)
	}
	if err := d.Memory.SetMemory(ctx, s.UUID, s.RAM/2); err != nil {
		t.Error(err)
	}
	if err := d.Memory.SetMemory(ctx, s.UUID, s.RAM); err != nil {
		t.Error(err)
	}
	if got, err := d.Memory.Memory(ctx, s.UUID); err != nil || got != s.RAM {
		t.Errorf("with its limit lifted it has %d, %v; want %d", got, err, s.RAM)
	}
	if err := errors.Join(d.Domains.Destroy(ctx, s.UUID), d.Domains.Undefine(ctx, s.UUID)); err != nil {
		t.Error(err)
	}
	if _, err := d.Memory.Memory(ctx, s.UUID); !errors.Is(err, domain.ErrNotFound) {
		t.Errorf("memory of a missing domain: %v", err)
	}
}

// TestEvents is the suite of events. The domain is one that TestDomains takes.
func TestEvents(t *testing.T, d Libvirtd, s Sample) {
	t.Helper()
	ctx := t.Context()
	events, unsubscribe := d.Connection.Subscribe()
	await := func(kind domain.EventKind, reason domain.Reason) {
		t.Helper()
		for {
			select {
			case got := <-events:
				if got.UUID != s.UUID || got.Kind != kind {
					continue
				}
				if got.Reason != reason {
					t.Errorf("%s for %q, want %q", kind, got.Reason, reason)
				}
				return
			case <-ctx.Done():
				t.Fatalf("no event that the domain was %s", kind)
			}
		}
	}
	if err := d.Domains.Define(ctx, s.XML); err != nil {
		t.Fatal(err)
	}
	await(domain.EventDefined, domain.ReasonNone)
	if _, err := d.Domains.Start(ctx, s.UUID, s.Files); err != nil {
		t.Fatal(err)
	}
	await(domain.EventStarted, domain.ReasonNone)
	if err := d.Domains.Resume(ctx, s.UUID); err != nil {
		t.Fatal(err)
	}
	await(domain.EventResumed, domain.ReasonNone)
	if err := d.Domains.Destroy(ctx, s.UUID); err != nil {
		t.Fatal(err)
	}
	await(domain.EventStopped, domain.ReasonDestroyed)
	if err := d.Domains.Undefine(ctx, s.UUID); err != nil {
		t.Fatal(err)
	}
	await(domain.EventUndefined, domain.ReasonNone)
	unsubscribe()
	unsubscribe()
	for range events {
		continue // until it is closed
	}
}
