package domain

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// SecretKind says what a [Secret] is for, in libvirt's words.
type SecretKind string

// The kinds of secrets: CHAP's password, and the key of a user of Ceph.
const (
	SecretISCSI SecretKind = "iscsi"
	SecretCeph  SecretKind = "ceph"
)

// Secret is a password that libvirtd passes to QEMU. It is private: libvirtd never
// returns its value. It is ephemeral: libvirtd keeps it in memory alone, and loses
// it at a restart.
type Secret struct {
	// UUID is the secret's identity. Usage names its purpose, uniquely in this libvirtd.
	UUID, Usage string
	Kind        SecretKind
	// Description is for node administrators.
	Description string
}

// Secrets keeps passwords in libvirtd.
type Secrets struct{ conn *Connection }

// SetSecret defines a password in libvirtd, or replaces its value.
func (s *Secrets) SetSecret(ctx context.Context, secret Secret, value string) error {
	text, err := secret.xml()
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

func (s Secret) xml() (string, error) {
	usage := &libvirtxml.SecretUsage{Type: string(s.Kind)}
	if s.Kind == SecretCeph {
		usage.Name = s.Usage
	} else {
		usage.Target = s.Usage
	}
	return (&libvirtxml.Secret{
		Ephemeral: "yes", Private: "yes", UUID: s.UUID, Description: s.Description, Usage: usage,
	}).Marshal()
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
