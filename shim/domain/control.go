package domain

import (
	"context"
	"errors"
	"fmt"
	"io"

	"libvirt.org/go/libvirt"
)

// Pause stops a running domain's processors. One that is paused already is no error. [ErrNotRunning]
// where there is no machine.
func (d *Driver) Pause(ctx context.Context, uuid string) error {
	return do(ctx, d, "pause", uuid, (*libvirt.Domain).Suspend)
}

// Reset restarts the machine at once, as its reset button does: what the guest has not written is lost.
func (d *Driver) Reset(ctx context.Context, uuid string) error {
	return do(ctx, d, "reset", uuid, func(dom *libvirt.Domain) error { return dom.Reset(0) })
}

// Reboot presses the ACPI power button, and resets the machine when the guest has powered off, which it
// need not do. It returns before the guest has reacted.
func (d *Driver) Reboot(ctx context.Context, uuid string) error {
	return do(ctx, d, "reboot", uuid, func(dom *libvirt.Domain) error {
		return dom.Reboot(libvirt.DOMAIN_REBOOT_ACPI_POWER_BTN)
	})
}

// maxScreenshot bounds a picture, in bytes: one of 8192 by 8192 pixels, as a portable pixmap.
const maxScreenshot = 8192*8192*3 + 64

// Screenshot is a picture of a running machine's first display, in a format that its first bytes tell:
// PNG or, of older QEMUs, a portable pixmap.
func (d *Driver) Screenshot(ctx context.Context, uuid string) ([]byte, error) {
	return call(ctx, d, "take a screenshot of", "domain "+uuid, func(c *libvirt.Connect) ([]byte, error) {
		dom, err := c.LookupDomainByUUIDString(uuid)
		if err != nil {
			return nil, err
		}
		defer dom.Free()
		stream, err := c.NewStream(0)
		if err != nil {
			return nil, explain(dom, err)
		}
		defer func() { _ = stream.Free() }()
		if _, err := dom.Screenshot(stream, 0, 0); err != nil {
			return nil, explain(dom, err)
		}
		data, err := readStream(stream)
		if err != nil {
			return nil, explain(dom, errors.Join(err, stream.Abort()))
		}
		if err := stream.Finish(); err != nil {
			return nil, explain(dom, err)
		}
		return data, nil
	})
}

func readStream(stream *libvirt.Stream) ([]byte, error) {
	var data []byte
	buffer := make([]byte, 256<<10)
	for {
		n, err := stream.Recv(buffer)
		data = append(data, buffer[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) > maxScreenshot:
			return nil, fmt.Errorf("a picture of more than %d bytes", maxScreenshot)
		}
	}
}
