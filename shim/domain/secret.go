package domain

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// Secret is a password that libvirtd passes to QEMU. It is private: libvirtd never
// returns its value. It is ephemeral: libvirtd keeps it in memory alone, and loses
// it at a restart.
type Secret struct {
	// UUID is the secret's identity. Usage names its purpose, uniquely in this libvirtd.
	UUID, Usage string
	// Description is for node administrators.
	Description string
}

// SetSecret defines an iSCSI password in libvirtd, or replaces its value.
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

// RemoveSecret removes a secret from libvirtd, if it exists.
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
