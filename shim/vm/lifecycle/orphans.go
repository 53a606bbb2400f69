package lifecycle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// moveBroken moves broken records of sandboxes out of the way. A sandbox's VM
// restores the record.
func (c *recovery) moveBroken() error {
	broken, err := c.records.MoveBroken()
	for _, b := range broken {
		c.log.Error("a broken record was moved", "kind", b.Kind, "id", b.ID, "path", b.Path, "error", b.Err,
			"remedy", "remove the pod that it was of, then this file")
	}
	return err
}

// refuse enters the containers and sandboxes whose records cannot be used, so that
// these records stop nothing but their own VMs. Their guests may run, and keep what
// is known of them: names, user IDs, disks. Nothing of them is changed or removed.
func (c *recovery) refuse() error {
	all, err := c.records.Refused()
	if err != nil {
		return err
	}
	for _, f := range all {
		c.log.Error("a record cannot be used, and its VM is left alone", "kind", f.Kind, "id", f.ID, "path", f.Path,
			"error", f.Err, "remedy", `see "Records that cannot be used" in docs/node.md`)
		switch f.Kind {
		case "container":
			c.refused[f.ID] = f
			c.refuseContainer(f)
		case "sandbox":
			if f.Sandbox.Handler == "" {
				f.Sandbox.Handler = c.handler
			}
			c.table.RefuseSandbox(f.Sandbox, f.Err)
		}
	}
	return nil
}

// refuseContainer reserves the disks of a container whose guest may run, and enters
// the container without them: nothing may open or remove them.
func (c *recovery) refuseContainer(f record.Refused) {
	r := f.Container
	r.State = record.Running
	if err := c.disks.Recover(r); err != nil {
		c.log.Warn("reserving the disks of a VM whose record cannot be used failed", "id", f.ID, "error", err)
	}
	r.State, r.Spec.Disks, r.Disks = record.Unknown, nil, nil
	r.Reason, r.Message = "RecordRefused", f.Err.Error()
	c.table.RefuseContainer(r, f.Err)
	if r.SandboxID == "" {
		return
	}
	if _, known := c.table.Sandbox(r.SandboxID); !known && r.Sandbox.Value.GetMetadata() != nil {
		// Its own record may be read next. Without one the pod's removal must not pass it by.
		c.table.RecoverSandbox(record.Sandbox{ID: r.SandboxID, Handler: c.handler, CreatedAt: r.CreatedAt, Config: r.Sandbox})
	}
}

// sweepRun ends and removes what the run folder holds of containers without a
// record. A container whose record cannot be used counts as one with a record.
func (c *recovery) sweepRun(ctx context.Context) error {
	errs := []error{c.sweepNetworks(ctx), c.tpms.Sweep(ctx, c.table.Knows), c.filesystems.Sweep(ctx, c.table.Knows)}
	sockets, err := os.ReadDir(c.layout.Consoles)
	errs = append(errs, err)
	for _, s := range sockets {
		if id, found := strings.CutSuffix(s.Name(), ".sock"); found && !c.table.Knows(id) {
			errs = append(errs, layout.IgnoreAbsent(os.Remove(filepath.Join(c.layout.Consoles, s.Name()))))
		}
	}
	migrations, err := os.ReadDir(c.layout.Migrations)
	errs = append(errs, err)
	for _, folder := range migrations {
		if !c.table.Knows(folder.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(c.layout.Migrations, folder.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweepNetworks removes the networks of no container. It leaves all alone while there is a container whose networks
// are not known.
func (c *recovery) sweepNetworks(ctx context.Context) error {
	for _, v := range c.table.All("") {
		if r := v.Record(); r.State == record.Unknown && r.Network == nil {
			return nil
		}
	}
	return c.network.Sweep(ctx, c.knowsNetwork)
}

// knowsNetwork reports whether a container of the node has the network with an ID: its own, which has the
// container's ID, or that of a card which its VM has got. A network that an ended VM's record does not have is one that
// nothing else would remove.
func (c *recovery) knowsNetwork(id string) bool {
	if v, err := c.table.Find(id); err == nil {
		if r := v.Record(); r.State == record.Exited && r.Network == nil {
			return false
		}
	}
	return c.table.Knows(id) || slices.ContainsFunc(c.table.All(""), func(v *table.VM) bool {
		_, has := v.Record().NetworkOf(id)
		return has
	})
}

// removeFolders removes the folders of containers without a record. A folder whose nodes of devices could not be removed
// stays, since nothing else leads to them.
func (c *recovery) removeFolders() error {
	var errs []error
	keep := func(id string) bool {
		if c.table.Knows(id) {
			return true
		}
		err := c.disks.RemoveNodes(id)
		errs = append(errs, err)
		return err != nil
	}
	return errors.Join(append([]error{c.records.RemoveUnrecorded(keep)}, errs...)...)
}

// releaseStrayDisks releases the disks of containers without a record, and removes their nodes of devices. A creation holds
// its images before the table knows its container, so call it before the first.
func (c *recovery) releaseStrayDisks(ctx context.Context) error {
	return c.releaseDisks(ctx, func(id string) bool { return !c.table.Knows(id) && !disk.IsExport(id) })
}

// releaseDisks releases the disks of the containers that stray returns true for, and removes their nodes of devices.
func (c *recovery) releaseDisks(ctx context.Context, stray func(id string) bool) error {
	owners, err := c.images.Owners(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, owner := range owners {
		id := disk.Container(owner)
		if !stray(id) {
			continue
		}
		c.log.Info("releasing a disk that no container holds", "container", id)
		errs = append(errs, c.disks.RemoveNodes(id), c.images.Release(ctx, owner))
	}
	return errors.Join(errs...)
}

// removeStrayDomains removes the domains of containers without a record. A start writes its record before its domain,
// and a removal undefines the domain before it removes the record. So their records are lost, or they are another shim's,
// whose guests this shim must not end.
func (c *recovery) removeStrayDomains(ctx context.Context) {
	domains, err := c.observer.Domains(ctx)
	if err != nil {
		c.log.Error("listing the domains failed", "error", err)
		return
	}
	for _, d := range domains {
		own := func(v *table.VM) bool { return v.Record().Domain.UUID == d.UUID }
		if c.table.Has(d.ContainerID) || slices.ContainsFunc(c.table.All(""), own) {
			continue
		}
		c.tasks.Retry(lostPause, nil, func(ctx context.Context) bool {
			done, err := c.removeStrayDomain(ctx, d)
			if err != nil && ctx.Err() == nil {
				c.log.Warn("removing a domain without a record failed, retrying", "domain", d.Name, "error", err)
			}
			return done
		})
	}
}

// removeStrayDomain removes a domain, and what else its container left, once its guest has ended. It leaves a guest that
// runs alone.
func (c *recovery) removeStrayDomain(ctx context.Context, d domain.Info) (done bool, err error) {
	all, err := c.witness.Processes()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(p witness.Process) bool { return p.Container == d.ContainerID || p.Domain == d.Name }) {
		c.log.Warn("libvirt runs a domain of nodevirt's that no record here knows: "+
			"if it isn't another shim's, end it with virsh destroy and virsh undefine",
			"domain", d.Name, "container", d.ContainerID)
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	switch state, err := c.observer.State(ctx, d.UUID); {
	case errors.Is(err, domain.ErrNotFound): // the rest of it may be there
	case err != nil:
		return false, err
	case state.Status != domain.StatusShutoff:
		return false, nil // libvirt has yet to see that its QEMU has ended
	}
	if err := c.removeLeft(ctx, d.ContainerID, nil); err != nil {
		return false, err
	}
	c.log.Info("the domain of a guest without a record is removed: the guest has ended", "domain", d.Name, "container", d.ContainerID)
	return true, nil
}

// removeLeft removes what a container without a record left, once its guest has ended, and what else no container has but
// disks, since containers may be created meanwhile. v is the container as which the guest was shown, nil if it was not.
func (c *recovery) removeLeft(ctx context.Context, id string, v *table.VM) error {
	if err := errors.Join(c.undefine(ctx, id), c.disks.RemoveNodes(id)); err != nil {
		return err
	}
	if v != nil {
		c.table.ForgetRefused(v)
	}
	own := func(other string) bool { return other == id && !c.table.Knows(id) }
	return errors.Join(c.sweepRun(ctx), c.releaseDisks(ctx, own), c.removeFolders())
}

// undefine removes the domain of a container, if libvirt has one.
func (c *recovery) undefine(ctx context.Context, id string) error {
	domains, err := c.observer.Domains(ctx)
	if err != nil {
		return err
	}
	for _, d := range domains {
		if d.ContainerID == id {
			return c.domains.Undefine(ctx, d.UUID)
		}
	}
	return nil
}
