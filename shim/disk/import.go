package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Import is a disk of another node, for the pods of one Kubernetes namespace on this
// node. The node's administrator makes it: a pod names neither an address nor a disk of
// another namespace.
type Import struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Connection
}

// check refuses values that libvirtd must not get.
func (i Import) check() (netip.AddrPort, iscsi.Access, error) {
	a := iscsi.Access{Name: i.Target, Initiator: i.Initiator, User: i.User, Password: iscsi.NewSecret(i.Password)}
	portal, err := netip.ParseAddrPort(i.Portal)
	switch {
	case !shareName.MatchString(i.Name):
		return portal, a, fmt.Errorf("import %q: %w", i.Name, ErrName)
	case i.Namespace == "":
		return portal, a, fmt.Errorf("import %s: %w: it names no namespace whose pods may use it", i.Name, ErrBad)
	case err != nil:
		return portal, a, fmt.Errorf("import %s: %w: portal %q is no address with a port", i.Name, ErrBad, i.Portal)
	case i.LUN < 0 || i.LUN > 255:
		return portal, a, fmt.Errorf("import %s: %w: LUN %d", i.Name, ErrBad, i.LUN)
	}
	if err := a.Check(); err != nil {
		return portal, a, fmt.Errorf("import %s: %w: %w", i.Name, ErrBad, err)
	}
	return portal, a, nil
}

// ErrBad says that a connection can't be used as it is.
var ErrBad = errors.New("not the connection of an export")

func (d *Disks) importFile(name string) string {
	return filepath.Join(d.Shares, "imports", name+".json")
}

// Import lets the pods of a namespace use a disk of another node, by a name. Only root
// can read the file of the connection.
func (d *Disks) Import(i Import) error {
	if _, _, err := i.check(); err != nil {
		return err
	}
	d.shares.Lock()
	defer d.shares.Unlock()
	if _, err := os.Lstat(d.importFile(i.Name)); err == nil {
		return fmt.Errorf("import %s: %w", i.Name, ErrExists)
	}
	text, err := json.MarshalIndent(i, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Join(d.Shares, "imports"), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(d.importFile(i.Name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", i.Name, err)
	}
	return nil
}

// Forget removes an import. VMs that run keep their disk.
func (d *Disks) Forget(name string) error {
	if !shareName.MatchString(name) {
		return fmt.Errorf("import %q: %w", name, ErrName)
	}
	d.shares.Lock()
	defer d.shares.Unlock()
	err := os.Remove(d.importFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w import %q", ErrUnknown, name)
	}
	return err
}

// Imports returns all imports.
func (d *Disks) Imports() ([]Import, error) {
	files, err := filepath.Glob(d.importFile("*"))
	if err != nil {
		return nil, err
	}
	var all []Import
	for _, path := range files {
		i, err := d.readImport(strings.TrimSuffix(filepath.Base(path), ".json"))
		if errors.Is(err, ErrUnknown) {
			continue // forgotten meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

func (d *Disks) readImport(name string) (Import, error) {
	if !shareName.MatchString(name) {
		return Import{}, fmt.Errorf("import %q: %w", name, ErrName)
	}
	text, err := os.ReadFile(d.importFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Import{}, fmt.Errorf("%w import %q", ErrUnknown, name)
	}
	var i Import
	if err == nil {
		err = json.Unmarshal(text, &i)
	}
	if err != nil {
		return Import{}, fmt.Errorf("read import %s: %w", name, err)
	}
	return i, nil
}

// importContent is the connection of an imported disk.
type importContent struct{ *Disks }

// acquire finds an import for a pod. A pod of another namespace gets the same error as
// for a missing import.
func (o importContent) acquire(_ context.Context, k Disk, _ *imageunpack.Disk) (record.Disk, error) {
	name := k.Import
	i, err := o.readImport(name)
	if errors.Is(err, ErrUnknown) || err == nil && i.Namespace != k.namespace {
		return record.Disk{}, fmt.Errorf("%w import %q for namespace %q on this node: an administrator makes one by \"nodevirt disk import\"",
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

func (importContent) release(context.Context, Disk) error { return nil }

// imported is a disk that this node imports.
type imported struct {
	*Disks
	passive
}

// create checks that the disk is free. The start reserves it.
func (o imported) create(_ context.Context, k Disk) error { return o.alone(k, o.reserved.free) }

func (o imported) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	if err := o.take(k); err != nil {
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

// place returns what identifies an import's disk, whatever its names on this node.
func place(i *record.Import) string { return fmt.Sprintf("%s %s %d", i.Portal, i.Target, i.LUN) }

// restore sets the password again, which is not in the record.
func (o imported) restore(ctx context.Context, k Disk) error {
	held, err := o.held(k)
	if err != nil {
		return err
	}
	i, err := o.readImport(held.Name)
	if err != nil {
		return err
	}
	_, access, err := i.check()
	if err != nil {
		return err
	}
	if i.Target != held.Target || i.Initiator != held.Initiator {
		return fmt.Errorf("import %s is another disk than when the container was made: make a new container", held.Name)
	}
	return o.setSecret(ctx, k, access)
}

func (o imported) detach(ctx context.Context, k Disk) error {
	o.reserved.drop(k)
	return o.ISCSI.Secrets.RemoveSecret(ctx, secretOf(k))
}

func (o imported) held(k Disk) (*record.Import, error) {
	if k.Content.Import == nil {
		return nil, errors.New("the record does not say which import it is")
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
