package domain

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// Secret is a password that libvirtd hands to QEMU. It is private, so that
// libvirtd tells its value to nobody, and ephemeral: libvirtd keeps it in memory
// alone, and has lost it after a restart.
type Secret struct {
	// UUID is its identity. Usage names what it is for, uniquely in this libvirtd.
	UUID, Usage string
	// Description is for people.
	Description string
}

// SetSecret makes libvirtd know an iSCSI password, or replaces its value.
func (d *Driver) SetSecret(ctx context.Context, s Secret, value string) error {
	text, err := (&libvirtxml.Secret{
		Ephemeral: "yes", Private: "yes",
		UUID: s.UUID, Description: s.Description,
		Usage: &libvirtxml.SecretUsage{Type: "iscsi", Target: s.Usage},
	}).Marshal()
	if err != nil {
		return fmt.Errorf("encode secret %s: %w", s.UUID, err)
	}
	_, err = call(ctx, d, "set", "secret "+s.UUID, func(c *libvirt.Connect) (struct{}, error) {
		secret, err := c.SecretDefineXML(text, 0)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = secret.Free() }()
		return struct{}{}, secret.SetValue([]byte(value), 0)
	})
	return err
}

// RemoveSecret makes libvirtd forget a secret. One that isn't there is no error.
func (d *Driver) RemoveSecret(ctx context.Context, uuid string) error {
	_, err := call(ctx, d, "remove", "secret "+uuid, func(c *libvirt.Connect) (struct{}, error) {
		secret, err := c.LookupSecretByUUIDString(uuid)
		if errors.Is(err, libvirt.ERR_NO_SECRET) {
			return struct{}{}, nil
		}
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = secret.Free() }()
		err = secret.Undefine()
		if errors.Is(err, libvirt.ERR_NO_SECRET) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}
