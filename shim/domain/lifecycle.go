package domain

import (
	"context"
	"encoding/xml"
	"errors"

	"libvirt.org/go/libvirt"
)

// Lifecycle defines, starts, controls and ends domains.
type Lifecycle struct {
	conn      *Connection
	processes *Processes
	pending   pending
}

// Define defines a domain, or replaces its definition. After [ErrUnanswered] the domain
// may be defined later: undo that with [Lifecycle.Destroy] and [Lifecycle.Undefine].
func (l *Lifecycle) Define(ctx context.Context, text string) error {
	var head struct {
		Name string `xml:"name"`
		UUID string `xml:"uuid"`
	}
	if err := xml.Unmarshal([]byte(text), &head); err != nil {
		return &failure{op: "define", object: "domain", detail: err}
	}
	object := "domain " + head.Name
	if ctx.Err() != nil {
		return expired(ctx, "define", object)
	}
	end := l.pending.begin(head.UUID)
	_, err := await(ctx, "define", object, func() (struct{}, error) {
		defer end()
		return call(context.WithoutCancel(ctx), l.conn, "define", object, func(c *libvirt.Connect) (struct{}, error) {
			dom, err := c.DomainDefineXML(text)
			if err != nil {
				return struct{}{}, err
			}
			return struct{}{}, dom.Free()
		})
	})
	return err
}

// Resume resumes a paused domain. A running domain is no error. The error is
// [ErrNotRunning] if the domain is shut off.
func (l *Lifecycle) Resume(ctx context.Context, uuid string) error {
	err := do(ctx, l.conn, "resume", uuid, (*libvirt.Domain).Resume)
	if errors.Is(err, ErrRunning) {
		return nil
	}
	return err
}

// Shutdown sends an ACPI shutdown request. It returns before the guest reacts, and
// the guest may ignore the request. The error is [ErrNotRunning] if the domain is
// shut off.
func (l *Lifecycle) Shutdown(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "shut down", uuid, func(dom *libvirt.Domain) error {
		return dom.ShutdownFlags(libvirt.DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
	})
}

// Destroy powers a domain off and returns when QEMU has ended. A domain that
// doesn't run or doesn't exist is no error. If a [Lifecycle.Define] or [Lifecycle.Start]
// whose context has ended is still in progress, Destroy waits for it and ends its domain too.
func (l *Lifecycle) Destroy(ctx context.Context, uuid string) error {
	pending := l.pending.of(uuid)
	err := l.destroy(ctx, uuid)
	if err != nil || pending == nil {
		return err
	}
	// The pending call may have happened after the one above.
	select {
	case <-pending:
		return l.destroy(ctx, uuid)
	case <-ctx.Done():
		return unanswered(ctx, "destroy", "domain "+uuid)
	}
}

func (l *Lifecycle) destroy(ctx context.Context, uuid string) error {
	err := do(ctx, l.conn, "destroy", uuid, func(dom *libvirt.Domain) error {
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
func (l *Lifecycle) Undefine(ctx context.Context, uuid string) error {
	err := do(ctx, l.conn, "undefine", uuid, func(dom *libvirt.Domain) error {
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
