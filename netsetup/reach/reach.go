// Package reach limits which addresses VMs' processes can reach in the node's network.
//
// QEMU runs in the node's network namespace, under its VM's user ID. A guest that takes over its QEMU
// must not reach the node's services, other nodes or the API server. So an nftables table rejects
// every packet that a socket of a VM's user sends, except those to the portals of the VM's network
// disks. Frames that QEMU writes to a tap do not pass through a socket, so the table does not affect
// them; nor does it affect unix sockets.
//
// It owns the table. It leaves to its caller which portals a VM may reach.
package reach

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/knftables"
)

// Options are the settings of a Filter. All are needed, but for Networks.
type Options struct {
	// FirstUID to LastUID are the users of VMs, and of no other processes.
	FirstUID, LastUID uint32
	// Networks are those of storage whose servers are not known beforehand: a user that may
	// reach a portal in one of them reaches all of these networks by TCP.
	Networks []netip.Prefix
	// CheckEvery is the pause between two looks of Watch at the table.
	CheckEvery time.Duration
	Logger     *slog.Logger
}

// Filter is the table of the network namespace in which this process runs. VMs' processes must run
// in the same one. Its methods may be called at the same time.
type Filter struct {
	opts Options

	mu  sync.Mutex // held during a change
	nft knftables.Interface
	// allowed are the portals that each user may reach.
	allowed map[uint32][]netip.AddrPort
	// loaded is false while the table may differ from allowed.
	loaded bool
}

// New returns a Filter. The table does not change until the first call of a method.
func New(o Options) *Filter {
	return &Filter{opts: o, allowed: map[uint32][]netip.AddrPort{}}
}

// Restore replaces the table, in one step. Afterwards each user can reach the portals in allowed.
// Users for which keep returns true can also reach the portals that an earlier Filter allowed them:
// their processes may have connections to portals that the caller no longer knows.
func (f *Filter) Restore(ctx context.Context, allowed map[uint32][]netip.AddrPort, keep func(uid uint32) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, portals := range allowed {
		f.allowed[uid] = normal(portals)
	}
	old, err := f.listed(ctx)
	if err != nil {
		f.loaded = false
		return err
	}
	for uid, portals := range old {
		if keep(uid) {
			f.allowed[uid] = normal(append(portals, f.allowed[uid]...))
		}
	}
	return f.load(ctx)
}

// Allow lets the processes of a user reach portals, and no other address. If it fails, the table may
// be missing, so the caller must not start a process of that user.
func (f *Filter) Allow(ctx context.Context, uid uint32, portals []netip.AddrPort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, is := f.allowed[uid], normal(portals)
	if len(is) > 0 {
		f.allowed[uid] = is
	} else {
		delete(f.allowed, uid)
	}
	if f.loaded && slices.Equal(was, is) {
		return nil
	}
	if f.loaded && f.change(ctx, func(tx *knftables.Transaction) {
		for _, e := range f.elements(uid, was) {
			tx.Delete(e)
		}
		for _, e := range f.elements(uid, is) {
			tx.Add(e)
		}
	}) == nil {
		return nil
	}
	return f.load(ctx) // also if another program has removed the table
}

// Watch loads the table again, until ctx ends, when another program has removed it. A restart of
// nftables.service does that.
func (f *Filter) Watch(ctx context.Context) {
	tick := time.NewTicker(f.opts.CheckEvery)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f.repair(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			f.opts.Logger.Error("VMs' processes may reach the node's network, retrying", "error", err)
		}
		failed = err != nil
	}
}

// Remove removes the table; one that does not exist is no error. No VM may run.
func Remove(ctx context.Context) error {
	err := New(Options{}).change(ctx, func(tx *knftables.Transaction) {
		tx.Add(&knftables.Table{}) // older versions of nft have no "destroy"
		tx.Delete(&knftables.Table{})
	})
	if err != nil {
		return fmt.Errorf("remove the limit of VMs' network reach: %w", err)
	}
	return nil
}

// repair loads the table unless it exists.
func (f *Filter) repair(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded {
		err := Check(ctx, f.opts.FirstUID, f.opts.LastUID)
		if err == nil {
			return nil
		}
		f.opts.Logger.Warn("the limits of VMs' network reach are gone, restoring them", "error", err)
	}
	return f.load(ctx)
}

// load replaces the table. The caller holds mu.
func (f *Filter) load(ctx context.Context) error {
	err := f.change(ctx, f.table)
	f.loaded = err == nil
	if err != nil {
		return fmt.Errorf("limit the network reach of VMs' processes: %w", err)
	}
	return nil
}

// normal returns portals as packets show them, sorted and without duplicates.
func normal(portals []netip.AddrPort) []netip.AddrPort {
	var all []netip.AddrPort
	for _, p := range portals {
		all = append(all, netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port()))
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
