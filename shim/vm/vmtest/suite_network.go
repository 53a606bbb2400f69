package vmtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestNetwork is the suite of guests' networks, and of what says there which pod has the guest. The pod's interface has
// addresses of both families.
func TestNetwork(t *testing.T, n lifecycle.Network, presence lifecycle.Presence, netns string) {
	t.Helper()
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	ctx := t.Context()
	p, err := n.Plan(ctx, id, netsetup.Pod{Netns: netns, Hostname: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != id || p.Netns != netns || len(p.NICs) != 1 || !p.Served() {
		t.Fatalf("plan %+v", p)
	}
	undo := func(when string) {
		t.Helper()
		for range 2 {
			if err := n.Undo(ctx, p); err != nil {
				t.Errorf("undo %s: %v", when, err)
			}
		}
	}
	undo("before anything is made")
	if err := n.Taps(ctx, p); err != nil {
		t.Fatal(err)
	}
	undo("with taps alone")
	if devices, err := n.OpenPlugged(ctx, p); err != nil || len(devices) > 0 {
		t.Errorf("devices of network binding plug-ins of a VM without any: %v, %v", devices, err)
	}
	if err := errors.Join(n.Taps(ctx, p), n.Apply(ctx, p), n.Apply(ctx, p)); err != nil {
		t.Fatal(err)
	}
	served(t, n, p)
	if err := n.Connect(ctx, p); err != nil {
		t.Errorf("connect: %v", err)
	}
	if err := errors.Join(presence.Own(ctx, p), presence.Announce(ctx, p), presence.Announce(ctx, p)); err != nil {
		t.Errorf("announce the guest: %v", err)
	}
	if err := errors.Join(presence.Free(ctx, p), presence.Free(ctx, p)); err != nil {
		t.Errorf("free the ports: %v", err)
	}
	for range 2 {
		if err := presence.Leave(ctx, p); err != nil {
			t.Errorf("leave the network: %v", err)
		}
	}
	_, one, _ := p.Split(p.NICs[0].Card)
	if err := errors.Join(n.Release(ctx, one), n.Release(ctx, one)); err != nil {
		t.Errorf("release a card: %v", err)
	}
	undo("of all")
	if err := n.Watch(ctx, p); err != nil {
		t.Errorf("watch a dnsmasq that is gone: %v", err)
	}
	swept(t, n, p)
}

// served checks the dnsmasq of a network that is made.
func served(t *testing.T, n lifecycle.Network, p netsetup.Plan) {
	t.Helper()
	ctx := t.Context()
	pid, err := n.Serve(ctx, p)
	if err != nil || pid <= 0 {
		t.Fatalf("dnsmasq's process is %d, %v", pid, err)
	}
	if again, err := n.Serve(ctx, p); err != nil || again != pid {
		t.Errorf("serving again: process %d, %v; it was %d", again, err, pid)
	}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if err := n.Watch(soon, p); err == nil {
		t.Error("a dnsmasq that runs has ended")
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Watch(ctx, p) }()
	if forgot, err := n.Forget(ctx, p); err != nil || !forgot {
		t.Errorf("forget the client: %t, %v", forgot, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("watch a dnsmasq that ends: %v", err)
	}
	if forgot, err := n.Forget(ctx, p); err != nil || forgot {
		t.Errorf("forget the client of no dnsmasq: %t, %v", forgot, err)
	}
	if other, err := n.Serve(ctx, p); err != nil || other == pid || other == 0 {
		t.Errorf("serving after the end: process %d, %v; it was %d", other, err, pid)
	}
}

// swept checks that a new shim ends only what no record knows, and gives a pod back to its next VM.
func swept(t *testing.T, n lifecycle.Network, p netsetup.Plan) {
	t.Helper()
	const other = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
	ctx := t.Context()
	if err := n.Apply(ctx, p); err != nil {
		t.Fatal(err)
	}
	pid, err := n.Serve(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Sweep(ctx, func(id string) bool { return id == p.ID }); err != nil {
		t.Error(err)
	}
	if again, err := n.Serve(ctx, p); err != nil || again != pid {
		t.Errorf("a known VM's dnsmasq was ended: process %d, %v; it was %d", again, err, pid)
	}
	if _, err := n.Plan(ctx, other, netsetup.Pod{Netns: p.Netns}); !errors.Is(err, netsetup.ErrInUse) {
		t.Errorf("another VM in the pod of a known one: %v", err)
	}
	if err := n.Sweep(ctx, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if err := n.Watch(ctx, p); err != nil {
		t.Errorf("watch a dnsmasq that was swept: %v", err)
	}
	if next, err := n.Plan(ctx, other, netsetup.Pod{Netns: p.Netns}); err != nil || !slices.Equal(next.PodIPs(), p.PodIPs()) {
		t.Errorf("the next VM of the pod has the addresses %v, %v; the pod had %v", next.PodIPs(), err, p.PodIPs())
	}
	if err := n.Undo(ctx, p); err != nil {
		t.Error(err)
	}
}
