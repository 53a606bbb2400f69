package disk

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// importContent is the connection of an imported disk.
type importContent struct {
	nothing
	imports *Imports
}

// acquire finds an import for a pod. A pod of another namespace gets the same error as
// for a missing import.
func (o importContent) acquire(_ context.Context, k Disk, _ *imageunpack.Disk) (record.Disk, error) {
	name := k.Import
	i, err := o.imports.read(name)
	if errors.Is(err, ErrUnknown) || err == nil && i.Namespace != k.namespace {
		return record.Disk{}, fmt.Errorf("%w import %q for namespace %q on this node: a node administrator adds it with \"nodevirt disk import\"",
			ErrUnknown, name, k.namespace)
	}
	if err == nil {
		_, _, err = i.check()
	}
	if err != nil {
		return record.Disk{}, err
	}
	return record.Disk{Import: &record.Import{
		Name: name, Portal: i.Portal, Target: i.Target, LUN: i.LUN, Initiator: i.Initiator, User: i.User, Shareable: i.Shareable,
	}}, nil
}

// imported is a disk that this node imports.
type imported struct {
	passive
	imports  *Imports
	reserved *reservations
	secrets  secrets
}

// create checks that the disk is free. The start reserves it.
func (o imported) create(_ context.Context, k Disk) error {
	return errors.Join(o.alone(k, o.reserved.free), o.unheld(k))
}

func (o imported) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	if err := o.take(k); err != nil {
		return nil, err
	}
	if err := o.unheld(k); err != nil {
		return nil, err
	}
	return nil, o.restore(ctx, k)
}

// recover reserves the disk for a VM that may run.
func (o imported) recover(k Disk, active bool) error {
	if !active {
		return nil
	}
	return o.take(k)
}

// take reserves the disk for this VM, among those of this node.
func (o imported) take(k Disk) error { return o.alone(k, o.reserved.take) }

// alone asks for a disk by its place, unless several VMs may use it.
func (o imported) alone(k Disk, ask func(Disk, string) error) error {
	held, err := o.held(k)
	if err != nil || held.Shareable {
		return err
	}
	if err := ask(k, place(held)); err != nil {
		return fmt.Errorf("import %s: %w", held.Name, err)
	}
	return nil
}

// unheld returns ErrInUse if a QEMU that this shim does not manage has the disk open.
func (o imported) unheld(k Disk) error {
	held, err := o.held(k)
	if err != nil || held.Shareable {
		return err
	}
	if err := unheldRemote(k, o.reserved, isLUN(held.Target, held.LUN)); err != nil {
		return fmt.Errorf("import %s: %w", held.Name, err)
	}
	return nil
}

// place returns what identifies an import's disk, whatever its names on this node. It
// may be a PVC, too.
func place(i *record.Import) string {
	return vmspec.NetworkDisk{ISCSI: &vmspec.ISCSIVolume{Target: i.Target, LUN: i.LUN}}.Keys()[0]
}

// restore sets the password again, which is not in the record.
func (o imported) restore(ctx context.Context, k Disk) error {
	held, err := o.held(k)
	if err != nil {
		return err
	}
	i, err := o.imports.read(held.Name)
	if err != nil {
		return err
	}
	_, access, err := i.check()
	if err != nil {
		return err
	}
	if i.Target != held.Target || i.Initiator != held.Initiator {
		return fmt.Errorf("import %s is another disk than when the container was created: create a new container", held.Name)
	}
	return setSecret(ctx, o.secrets, k, domain.SecretISCSI, access.Password.Reveal())
}

func (o imported) detach(ctx context.Context, k Disk) error {
	o.reserved.drop(k)
	return o.secrets.RemoveSecret(ctx, secretOf(k))
}

func (o imported) held(k Disk) (*record.Import, error) {
	if k.Content.Import == nil {
		return nil, errors.New("the record does not name the import")
	}
	return k.Content.Import, nil
}

func (o imported) describe(k Disk) domain.Disk {
	held, err := o.held(k)
	if err != nil {
		return domain.Disk{}
	}
	portal, _ := netip.ParseAddrPort(held.Portal) // as it was checked when it was held
	// As with overISCSI: a lost connection is not the end of the disk.
	return domain.Disk{ErrorPolicy: "stop", Layers: []domain.Layer{{
		Format: string(imageunpack.Raw), ReadOnly: k.ReadOnly,
		ISCSI: &domain.ISCSI{
			Portal: portal, Target: held.Target, LUN: held.LUN, Initiator: held.Initiator, User: held.User, Secret: secretOf(k),
		},
	}}}
}
