package domain

import (
	"context"
	"encoding/xml"
	"errors"

	"libvirt.org/go/libvirt"
)

// Define makes libvirtd know a domain, or replaces its description.
func (d *Driver) Define(ctx context.Context, text string) error {
	var head struct {
		Name string `xml:"name"`
	}
	if err := xml.Unmarshal([]byte(text), &head); err != nil {
		return &failure{op: "define", object: "domain", detail: err}
	}
	_, err := call(ctx, d, "define", "domain "+head.Name, func(c *libvirt.Connect) (struct{}, error) {
		dom, err := c.DomainDefineXML(text)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, dom.Free()
	})
	return err
}

// Resume lets a paused domain run. One that runs already is no error.
// [ErrNotRunning] where there is no machine.
func (d *Driver) Resume(ctx context.Context, uuid string) error {
	err := do(ctx, d, "resume", uuid, (*libvirt.Domain).Resume)
	if errors.Is(err, ErrRunning) {
		return nil
	}
	return err
}

// Shutdown presses the ACPI power button. It returns before the guest has
// reacted, which it need not do. [ErrNotRunning] where nothing runs.
func (d *Driver) Shutdown(ctx context.Context, uuid string) error {
	return do(ctx, d, "shut down", uuid, func(dom *libvirt.Domain) error {
		return dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	})
}

// Destroy powers the machine off and returns when QEMU is gone. A domain that
// doesn't run, or isn't there, is no error. Where a [Driver.Start] that its
// caller gave up is still under way, Destroy ends that one, too.
func (d *Driver) Destroy(ctx context.Context, uuid string) error {
	pending := d.starts.of(uuid)
	err := d.destroy(ctx, uuid)
	if err != nil || pending == nil {
		return err
	}
	// The start may have come after what we just did.
	select {
	case <-pending:
		return d.destroy(ctx, uuid)
	case <-ctx.Done():
		return expired(ctx, "destroy", "domain "+uuid)
	}
}

func (d *Driver) destroy(ctx context.Context, uuid string) error {
	err := do(ctx, d, "destroy", uuid, func(dom *libvirt.Domain) error {
		err := dom.Destroy()
		if errors.Is(err, libvirt.ERR_OPERATION_INVALID) {
			return nil // it doesn't run
		}
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Undefine makes libvirtd forget a domain, with all that libvirtd has stored
// for it. One that runs goes on to run and is forgotten when it ends. One that
// isn't there is no error.
func (d *Driver) Undefine(ctx context.Context, uuid string) error {
	err := do(ctx, d, "undefine", uuid, func(dom *libvirt.Domain) error {
		return dom.UndefineFlags(libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE |
			libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
			libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA |
			libvirt.DOMAIN_UNDEFINE_NVRAM)
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
