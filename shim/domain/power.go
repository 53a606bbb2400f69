package domain

import (
	"context"

	"libvirt.org/go/libvirt"
)

// Pause stops the virtual CPUs of a running domain. A paused domain is no error. The error is
// [ErrNotRunning] if the domain does not run.
func (l *Lifecycle) Pause(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "pause", uuid, (*libvirt.Domain).Suspend)
}

// Reset resets a domain at once, as a reset button does. The guest loses data that it has not written.
func (l *Lifecycle) Reset(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "reset", uuid, func(dom *libvirt.Domain) error { return dom.Reset(0) })
}

// Reboot sends an ACPI shutdown request, and resets the domain when the guest has powered off. It returns
// before the guest reacts, and the guest may ignore the request.
func (l *Lifecycle) Reboot(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "reboot", uuid, func(dom *libvirt.Domain) error {
		return dom.Reboot(libvirt.DOMAIN_REBOOT_ACPI_POWER_BTN)
	})
}

// ForgetTicks drops the interrupts of the hardware clock that a domain has missed while it was paused. QEMU
// would catch up on them, and the clock of a guest that counts them would run ahead.
func (l *Lifecycle) ForgetTicks(ctx context.Context, uuid string) error {
	return do(ctx, l.conn, "reset the clock's interrupts of", uuid, func(dom *libvirt.Domain) error {
		_, err := command(dom, "rtc-reset-reinjection", nil)
		return err
	})
}
