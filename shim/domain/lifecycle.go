package domain

import (
	"context"
	"encoding/xml"
	"errors"

	"libvirt.org/go/libvirt"
)

// Define defines a domain, or replaces its definition.
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

// Resume resumes a paused domain. A running domain is no error. The error is
// [ErrNotRunning] if the domain is shut off.
func (d *Driver) Resume(ctx context.Context, uuid string) error {
	err := do(ctx, d, "resume", uuid, (*libvirt.Domain).Resume)
	if errors.Is(err, ErrRunning) {
		return nil
	}
	return err
}

// Shutdown sends an ACPI shutdown request. It returns before the guest reacts, and
// the guest may ignore the request. The error is [ErrNotRunning] if the domain is
// shut off.
func (d *Driver) Shutdown(ctx context.Context, uuid string) error {
	return do(ctx, d, "shut down", uuid, func(dom *libvirt.Domain) error {
		return dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	})
}

// Destroy powers a domain off and returns when QEMU has ended. A domain that
// doesn't run or doesn't exist is no error. If a [Driver.Start] whose context has
// ended is still in progress, Destroy waits for it and ends its domain too.
func (d *Driver) Destroy(ctx context.Context, uuid string) error {
	pending := d.starts.of(uuid)
	err := d.destroy(ctx, uuid)
	if err != nil || pending == nil {
		return err
	}
	// The start may have happened after the call above.
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

// Undefine removes a domain's definition and all that libvirtd has stored for it.
// A running domain continues to run and is removed when it ends. A domain that
// doesn't exist is no error.
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
