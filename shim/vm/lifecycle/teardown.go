package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// teardown undoes what a start made. It works from the record alone.
type teardown struct {
	groups      Groups
	network     Network
	consoles    Consoles
	tpms        TPMs
	filesystems Filesystems
	layout      layout.Layout
	disks       DiskAttacher
	domains     ender
	witness     Witness
	agents      Agents
	hooks       Hooks
	hostDevices hostdevice.Node
}

// run undoes all phases of a VM's start, and updates r, which the caller writes.
func (t *teardown) run(ctx context.Context, v *table.VM, r *record.Container) error {
	if r.Unclean {
		defer t.agents.Absent(v)
	}
	return undoPhases(ctx, t, r)
}

func (t *teardown) removeGroup(_ context.Context, r *record.Container) error {
	return t.groups.Remove(*r)
}

func (t *teardown) removeNetwork(ctx context.Context, r *record.Container) error {
	err := t.removeCards(ctx, r)
	if r.Network == nil {
		return err
	}
	if failed := t.network.Undo(ctx, *r.Network); failed != nil {
		return errors.Join(err, failed)
	}
	r.Network = nil
	return err
}

// finishConsole has the console followed to its end, also if a new shim does not
// follow it yet.
func (t *teardown) finishConsole(ctx context.Context, r *record.Container) error {
	if _, err := os.Lstat(t.layout.ConsoleFile(r.ID)); err != nil {
		return layout.IgnoreAbsent(err) // the start did not come so far
	}
	if err := t.consoles.Follow(consoleOf(t.layout, *r)); err != nil {
		return err
	}
	err := t.consoles.Finish(ctx, r.ID)
	return errors.Join(err, layout.IgnoreAbsent(os.Remove(t.layout.ConsoleSocket(r.ID))))
}

func (t *teardown) removeDisplay(_ context.Context, r *record.Container) error {
	return os.RemoveAll(t.layout.DisplayDir(r.ID))
}

func (t *teardown) detachDisks(ctx context.Context, r *record.Container) error {
	if err := t.disks.Detach(ctx, *r); err != nil {
		return err
	}
	r.Plugged, r.MemoryDump, r.Backup = nil, nil, nil
	return nil
}

// shutDownHooks reports the end of the domain to sidecars, which outlive their VM.
func (t *teardown) shutDownHooks(ctx context.Context, r *record.Container) error {
	t.hooks.Shutdown(ctx, *r)
	return nil
}

// removeDomain ends QEMU and has libvirt forget the domain. It is the first undo: while QEMU may run, nothing that QEMU
// uses is released.
func (t *teardown) removeDomain(ctx context.Context, r *record.Container) error {
	err := t.domains.Destroy(ctx, r.Domain.UUID)
	if err == nil {
		err = t.domains.Undefine(ctx, r.Domain.UUID)
	}
	if err != nil {
		if all, unknown := t.witness.Processes(); unknown != nil || witness.Of(all, identityOf(*r)) != witness.Absent {
			return errors.Join(errMayRun, err, unknown)
		}
		return err
	}
	// libvirt may have forgotten the domain.
	if err := t.witness.End(ctx, identityOf(*r)); err != nil {
		return fmt.Errorf("%w: %w", errMayRun, err)
	}
	return errors.Join(t.agents.RemoveSockets(r.ID), os.RemoveAll(t.layout.MigrationDir(r.ID)))
}
