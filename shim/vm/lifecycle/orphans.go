package lifecycle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
)

// moveBroken moves broken records out of the way: they stop nothing but their
// own VM. Its guest may still run; logStrayDomains reports it.
func (c *recovery) moveBroken() error {
	broken, err := c.records.MoveBroken()
	for _, b := range broken {
		out := "remove the pod that it was of, with virsh its domain if there still is one, then this file"
		if b.Kind == "container" {
			out = "with virsh destroy and undefine its domain, whose name ends in _" + b.ID[:12] + ", if there still is one; " +
				"take from the folder what is of use, remove it, and start the shim again, which releases the image's disk"
		}
		c.log.Error("a broken record was set aside", "kind", b.Kind, "id", b.ID, "path", b.Path, "error", b.Err, "remedy", out)
	}
	if err != nil {
		return err
	}
	ids, err := c.records.BrokenContainers()
	if err != nil || len(ids) == 0 {
		return err
	}
	inUse, err := c.table.UsersInUse()
	if err != nil {
		return err
	}
	c.table.SetBroken(ids, inUse)
	return nil
}

// sweepRun ends and removes what the run folder holds of containers without a
// record. A container whose record is broken counts as one with a record.
func (c *recovery) sweepRun(ctx context.Context) error {
	errs := []error{c.network.Sweep(ctx, c.table.Knows)}
	sockets, err := os.ReadDir(c.layout.Consoles)
	errs = append(errs, err)
	for _, s := range sockets {
		if id, found := strings.CutSuffix(s.Name(), ".sock"); found && !c.table.Knows(id) {
			errs = append(errs, layout.IgnoreAbsent(os.Remove(filepath.Join(c.layout.Consoles, s.Name()))))
		}
	}
	return errors.Join(errs...)
}

// releaseStrayDisks releases the disks of containers without a record.
func (c *recovery) releaseStrayDisks(ctx context.Context) error {
	owners, err := c.images.Owners(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, owner := range owners {
		id := disk.Container(owner)
		if c.table.Knows(id) || disk.IsExport(id) {
			continue
		}
		c.log.Info("releasing a disk that no container holds", "container", id)
		errs = append(errs, c.images.Release(ctx, owner))
	}
	return errors.Join(errs...)
}

// logStrayDomains names the domains of containers without a record. A start
// writes its record before its domain, and a removal undefines the domain before
// it removes the record. So these domains are another shim's, or their records
// are lost. They are guests at work, which this shim must not end.
func (c *recovery) logStrayDomains(ctx context.Context) {
	domains, err := c.observer.Domains(ctx)
	if err != nil {
		c.log.Error("listing the domains failed", "error", err)
		return
	}
	for _, d := range domains {
		if !c.table.Has(d.ContainerID) {
			c.log.Warn("libvirt runs a domain of nodevirt's that no record here knows: "+
				"if it isn't another shim's, end it with virsh destroy and virsh undefine",
				"domain", d.Name, "container", d.ContainerID)
		}
	}
}
