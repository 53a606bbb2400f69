package disk

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// networkDisk is a PVC that QEMU opens over the network: an iSCSI target's, or an RBD
// image. The kernel of the node has no part in it. One VM at a time uses it, as with
// other PVCs: this reservation, the command lines of QEMUs that the shim does not manage, and the
// controller's reservation among nodes ensure that.
type networkDisk struct {
	passive
	reserved *reservations
	secrets  secrets
	asker    asker
	// config is the file with librados' time limits.
	config string
}

// create checks that the disk is free. The start reserves it.
func (o networkDisk) create(_ context.Context, k Disk) error { return o.alone(k, o.reserved.free) }

func (o networkDisk) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	if err := o.alone(k, o.reserved.take); err != nil {
		return nil, err
	}
	held, err := heldNetwork(k)
	if err != nil {
		return nil, err
	}
	// QEMU would wait for minutes, and not say for what.
	if err := o.asker.any(ctx, held.Portals); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Network, err)
	}
	if k.Network.RBD != nil {
		if err := writeCephConfig(o.config); err != nil {
			return nil, err
		}
	}
	return nil, o.restore(ctx, k)
}

// recover reserves the disk for a VM that may run.
func (o networkDisk) recover(k Disk, active bool) error {
	if !active {
		return nil
	}
	return o.each(k, o.reserved.take)
}

// alone asks for a disk: the reservations, and then the QEMUs that this shim does not manage.
func (o networkDisk) alone(k Disk, ask func(Disk, string) error) error {
	if err := o.each(k, ask); err != nil {
		return err
	}
	if err := unheldRemote(k, o.reserved, isNetwork(k)); err != nil {
		return fmt.Errorf("%s: %w", k.Network, err)
	}
	return nil
}

// each asks for all that identifies the disk.
func (networkDisk) each(k Disk, ask func(Disk, string) error) error {
	for _, key := range k.Network.Keys() {
		if err := ask(k, key); err != nil {
			return fmt.Errorf("%s: %w", k.Network, err)
		}
	}
	return nil
}

// restore sets the password or the key again, which is not in the record.
func (o networkDisk) restore(ctx context.Context, k Disk) error {
	if k.Network.SecretName == "" {
		return nil
	}
	if k.Network.RBD != nil {
		key, err := credential.CephKey(k.Secret)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Network, err)
		}
		return setSecret(ctx, o.secrets, k, domain.SecretCeph, key)
	}
	_, password, err := credential.CHAP(k.Secret)
	if err != nil {
		return fmt.Errorf("%s: %w", k.Network, err)
	}
	return setSecret(ctx, o.secrets, k, domain.SecretISCSI, password)
}

func (o networkDisk) detach(ctx context.Context, k Disk) error {
	o.reserved.drop(k)
	if k.Network.SecretName == "" {
		return nil
	}
	return o.secrets.RemoveSecret(ctx, secretOf(k))
}

func heldNetwork(k Disk) (*record.NetworkDisk, error) {
	if k.Content.Network == nil || len(k.Content.Network.Portals) == 0 {
		return nil, errors.New("the record does not say how the disk is reached")
	}
	return k.Content.Network, nil
}

// describe returns a disk that stops the guest at an error: as with overISCSI, a lost
// connection is not the end of the disk.
func (o networkDisk) describe(k Disk) domain.Disk {
	held, err := heldNetwork(k)
	if err != nil {
		return domain.Disk{}
	}
	layer := domain.Layer{Format: string(imageunpack.Raw), ReadOnly: k.ReadOnly}
	secret := ""
	if k.Network.SecretName != "" {
		secret = secretOf(k)
	}
	if v := k.Network.RBD; v != nil {
		layer.RBD = &domain.RBD{Monitors: held.Portals, Pool: v.Pool, Image: v.Image, User: v.User, Secret: secret, Config: o.config}
	} else {
		v := k.Network.ISCSI
		layer.ISCSI = &domain.ISCSI{
			Portal: held.Portals[0], Target: v.Target, LUN: v.LUN, Initiator: v.Initiator, User: held.User, Secret: secret,
		}
	}
	return domain.Disk{ErrorPolicy: "stop", Layers: []domain.Layer{layer}}
}

// reachable returns the addresses that QEMU connects to.
func reachable(disks []domain.Disk) []netip.AddrPort {
	all := portals(disks)
	for _, disk := range disks {
		for _, layer := range disk.Layers {
			if layer.RBD != nil {
				all = append(all, layer.RBD.Monitors...)
			}
		}
	}
	return all
}
