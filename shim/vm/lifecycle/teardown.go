package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/nodevirt/nodevirt/shim/cgroup"
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
	presence    Presence
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
	log         *slog.Logger

	// discards is set for a container that is removed, with all that it has.
	discards bool
}

// discarding returns the teardown for a container that is removed. Its removal must
// not wait for what the removal itself would make possible, such as a log on a full disk.
func (t *teardown) discarding() *teardown {
	last := *t
	last.discards = true
	return &last
}

// run undoes all phases of a VM's start, and updates r, which the caller writes.
func (t *teardown) run(ctx context.Context, v *table.VM, r *record.Container) error {
	if r.Unclean {
		defer t.agents.Absent(v)
	}
	return undoPhases(ctx, t, r)
}

// removeGroup removes the VM's cgroup. With the container it also kills what is left in
// the group, such as a helper whose files were lost: nothing else would end it.
func (t *teardown) removeGroup(_ context.Context, r *record.Container) error {
	err := t.groups.Remove(*r)
	if !t.discards || !errors.Is(err, cgroup.ErrBusy) {
		return err
	}
	killed, failed := t.groups.Kill(*r)
	if failed != nil {
		return errors.Join(err, failed)
	}
	table.Logger(t.log, *r).Warn("killed processes that a VM had left in its cgroup", "processes", killed)
	return t.groups.Remove(*r)
}

func (t *teardown) removeNetwork(ctx context.Context, r *record.Container) error {
	if err := t.leaveNetworks(ctx, *r); err != nil {
		return err // what follows gives the guest's addresses to the pod
	}
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
	err := t.consoles.Follow(consoleOf(t.layout, *r))
	if err == nil {
		err = t.consoles.Finish(ctx, r.ID)
	}
	if err != nil && t.discards {
		err = t.dropConsole(r, err)
	}
	if err != nil {
		return err
	}
	return layout.IgnoreAbsent(os.Remove(t.layout.ConsoleSocket(r.ID)))
}

// dropConsole gives up the rest of the console of a container that is removed, and
// whose log could not be written: the removal may be what makes room for logs.
func (t *teardown) dropConsole(r *record.Container, cause error) error {
	lost, err := t.consoles.Drop(r.ID)
	if err != nil {
		return errors.Join(cause, err)
	}
	table.Logger(t.log, *r).Warn("the container is removed, and the rest of its console's output is not in its log",
		"bytes", lost, "error", cause)
	return nil
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
