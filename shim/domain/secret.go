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

// Secrets keeps passwords in libvirtd.
type Secrets struct{ conn *Connection }

// SetSecret defines an iSCSI password in libvirtd, or replaces its value.
func (s *Secrets) SetSecret(ctx context.Context, secret Secret, value string) error {
	text, err := (&libvirtxml.Secret{
		Ephemeral: "yes", Private: "yes",
		UUID: secret.UUID, Description: secret.Description,
		Usage: &libvirtxml.SecretUsage{Type: "iscsi", Target: secret.Usage},
	}).Marshal()
	if err != nil {
		return fmt.Errorf("encode secret %s: %w", secret.UUID, err)
	}
	_, err = call(ctx, s.conn, "set", "secret "+secret.UUID, func(c *libvirt.Connect) (struct{}, error) {
		defined, err := c.SecretDefineXML(text, 0)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = defined.Free() }()
		return struct{}{}, defined.SetValue([]byte(value), 0)
	})
	return err
}

// RemoveSecret removes a secret from libvirtd, if it exists.
func (s *Secrets) RemoveSecret(ctx context.Context, uuid string) error {
	_, err := call(ctx, s.conn, "remove", "secret "+uuid, func(c *libvirt.Connect) (struct{}, error) {
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
