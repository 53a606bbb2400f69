package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// recovery finds the VMs again that an earlier shim process made. It assumes that
// no other shim works on the same folders and that containerd answers; it does
// not assume that libvirtd does.
type recovery struct {
	table      *table.Table
	records    Records
	sandboxes  Sandboxes
	images     Images
	disks      DiskMaker
	keeper     DiskKeeper
	network    Network
	observer   Observer
	domains    ender
	witness    Witness
	groups     Groups
	consoles   Consoles
	conditions Conditions
	tasks      *background.Tasks
	layout     layout.Layout
	log        *slog.Logger
	handler    string
	moves      Moves

	starts      *starts
	ends        *ends
	dhcp        *dhcpKeeper
	tpms        TPMs
	filesystems Filesystems
	helpers     *helperKeeper

	// refused are the containers' records that cannot be used, by their IDs.
	refused map[string]record.Refused
}

func newRecovery(o Options, s *starts, e *ends, d *dhcpKeeper, h *helperKeeper) *recovery {
	return &recovery{
		table: o.Table, records: o.Records, sandboxes: o.Sandboxes, images: o.Images, disks: o.DiskMaker, keeper: o.DiskKeeper,
		network: o.Network, observer: o.Observer, domains: o.Domains, witness: o.Witness, groups: o.Groups, consoles: o.Consoles, conditions: o.Conditions, tasks: o.Tasks,
		layout: o.Layout, log: o.Logger, handler: o.RuntimeHandler, starts: s, ends: e, dhcp: d, helpers: h, moves: o.Moves,
		tpms: o.TPMs, filesystems: o.Filesystems, refused: map[string]record.Refused{},
	}
}

// run fills the table from the records.
//
// A container whose record cannot be used is entered as it is, and nothing changes
// it. So is a guest that runs without a record that says so. A container found creating was never reported to
// its caller: it goes, if not at once then as soon as possible. A container found
// starting failed to start; its phases are undone when libvirtd answers. So did one
// whose record says that it never started, but whose console exists. A guest
// found running may have ended since; the watcher finds out. Disks that no
// container holds are released.
func (c *recovery) run(ctx context.Context) error {
	if err := c.images.Sweep(); err != nil {
		return err
	}
	// A root that can be read only keeps what should go, and must not keep the shim from
	// its running VMs and the node's other containers. Records that stay are refused.
	if err := c.records.Sweep(); err != nil {
		c.log.Error("removing the temporary files of records failed", "error", err)
	}
	if err := c.moveBroken(); err != nil {
		c.log.Error("moving a broken record failed", "error", err)
	}
	if err := c.refuse(); err != nil {
		return err
	}
	sandboxes, err := c.records.Sandboxes()
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		c.table.RecoverSandbox(s)
	}
	containers, err := c.records.Containers()
	if err != nil {
		return err
	}
	// Before anything is deleted.
	if containers, err = c.lost(ctx, containers); err != nil {
		return err
	}
	if err := c.removeFolders(); err != nil {
		c.log.Error("removing folders without a record failed", "error", err)
	}
	c.limitReach(ctx, containers)
	for _, r := range containers {
		c.recoverContainer(ctx, r)
	}
	for _, v := range c.table.All("") {
		c.conditions.Update(v) // of those that have ended; libvirtd is asked about the others first
	}
	if err := c.sandboxes.Reconcile(ctx, c.ends.removeIn); err != nil {
		return err
	}
	if err := c.sweepRun(ctx); err != nil {
		c.log.Error("removing what VMs that are gone had left failed", "error", err)
	}
	if err := c.releaseStrayDisks(ctx); err != nil {
		// Among other things it needs room on containerd's disk, and a full disk must
		// not keep the shim from its running VMs. The next start finds them.
		c.log.Error("releasing disks that no container holds failed", "error", err)
	}
	return nil
}

// limitReach comes before every change to a VM. If it fails, no VM starts until it
// succeeds, but those that run must be served.
func (c *recovery) limitReach(ctx context.Context, containers []record.Container) {
	mayRun := slices.DeleteFunc(slices.Clone(containers), func(r record.Container) bool {
		return r.State != record.Starting && r.State != record.Running && !r.Unclean
	})
	if err := c.keeper.LimitReach(ctx, mayRun, c.table.Refusals.Any()); err != nil {
		c.log.Error("VMs' processes may reach the node's network, and no VM can start: install nftables, "+
			"and check that the kernel has nf_tables; retrying", "error", err)
	}
}

// recoverContainer enters one container. A sick VM must not keep the node from
// its other VMs, so errors are logged.
func (c *recovery) recoverContainer(ctx context.Context, r record.Container) {
	log := table.Logger(c.log, r)
	if err := c.sandboxes.Restore(c.handler, r); err != nil {
		log.Error("recording the sandbox of a VM again failed", "error", err)
	}
	v := c.table.Recover(r)
	if err := c.disks.Recover(r); err != nil {
		log.Error("finding the disks of a VM again failed", "error", err)
	}
	if err := c.recoverState(ctx, v, r); err != nil {
		log.Error("finding a VM again failed", "error", err)
	}
}

func (c *recovery) recoverState(ctx context.Context, v *table.VM, r record.Container) error {
	switch r.State {
	case record.Created:
		begun, err := c.begun(r)
		if err != nil || !begun {
			return err
		}
		// Its guest has ended: lost has entered those that run. What the start made is undone once libvirtd answers.
		r.Unclean = true
		return c.starts.fail(v, r, errors.New("the VM's record is an old one: it says that the VM never started, but its console exists"))
	case record.Creating:
		if err := c.ends.discard(ctx, v); err != nil {
			c.discardLater(v)
			return err
		}
		return nil
	case record.Starting:
		// Its domain, if there is one, is paused or about to run. That and the rest
		// is undone once libvirtd answers.
		return c.starts.fail(v, r, errors.New("the shim ended while the VM was being started"))
	case record.Running:
		c.moves.Recover(v) // before anything resumes a guest that another node may have
		c.dhcp.keep(v)
		if r.Incoming != "" {
			return c.consoles.Follow(consoleOf(c.layout, r))
		}
		c.helpers.keep(v)
		c.starts.announcer.keep(v)
		c.ends.watch(v)
		return c.consoles.Follow(consoleOf(c.layout, r))
	}
	return nil
}

// begun reports whether a container was started, whatever its record says: an administrator may have restored an older
// folder. The first start makes the console's file, and only the removal removes it.
func (c *recovery) begun(r record.Container) (bool, error) {
	_, err := os.Lstat(c.layout.ConsoleFile(r.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// discardPause is the time between two attempts to discard an unmade container.
// It grows, since no caller waits.
var discardPause = background.Pause{First: time.Second, Limit: time.Minute}

// discardLater retries to discard a container that was never made. Until then it
// keeps its name and its user id.
func (c *recovery) discardLater(v *table.VM) {
	c.tasks.Retry(discardPause, nil, func(ctx context.Context) bool {
		gone, err := c.discardUnmade(ctx, v)
		if err != nil {
			table.Logger(c.log, v.Record()).Warn("removing a container that was not made failed, retrying", "error", err)
		}
		return gone
	})
}

func (c *recovery) discardUnmade(ctx context.Context, v *table.VM) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return true, nil // removed with its pod
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	r := v.Record()
	if err := c.ends.discard(ctx, v); err != nil {
		return false, err
	}
	table.Logger(c.log, r).Info("a container that was not made is removed")
	return true, nil
}
