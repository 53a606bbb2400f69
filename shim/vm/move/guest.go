package move

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// guest returns what both nodes must have in common for a VM to move: on the source what
// its guest has, and on the target what this node would give it.
func (m *node) guest(r record.Container) (order.Guest, error) {
	g := order.Guest{UUID: r.Domain.UUID, Disks: contents(r), Cards: cards(r), MTUs: mtus(r)}
	if m.ownCPU(r) {
		g.CPU = m.o.CPU
	}
	if r.Firmware == nil {
		return g, nil
	}
	code, variables, err := r.Firmware.Sizes()
	g.Firmware = &order.Firmware{Code: code, Variables: variables, SMM: r.Firmware.SMM}
	return g, err
}

// ownCPU reports whether the guest has all that the node's CPU has. libvirt compares the
// others.
func (m *node) ownCPU(r record.Container) bool {
	model := r.Spec.CPU.Model
	return m.o.Accelerator == domain.KVM && r.Spec.Arch() == runtime.GOARCH && (model == "" || model == "host-passthrough")
}

// contents identifies the registry disks that a VM's disks begin as, or began as at the VM's start.
func contents(r record.Container) map[string]string {
	all := map[string]string{}
	for name, d := range r.Disks {
		if d.Image != nil {
			all[name] = identity(d)
		}
	}
	return all
}

// identity identifies the registry disk that a disk begins as; "" for none.
func identity(d record.Disk) string {
	if d.Image == nil {
		return ""
	}
	return d.Image.ImageID + " " + d.Image.Path
}

// cards describes the addresses of the cards that other hosts reach without a pod between, by the
// cards' names. A guest that moves keeps them.
func cards(r record.Container) map[string]string {
	all := map[string]string{}
	for _, n := range r.NICs() {
		if n.Binding == netsetup.Masquerade {
			continue
		}
		has := []string{n.GuestMAC.String()}
		for _, a := range []netsetup.Addressing{n.IPv4, n.IPv6} {
			if a.Address.IsValid() {
				has = append(has, a.Address.Addr().String())
			}
		}
		all[n.Card] = strings.Join(has, " ")
	}
	return all
}

// same returns an error if the source's guest needs what this node does not have. The guest's disks on volumes move
// with it, and volume reports which these are.
func same(own, theirs order.Guest, volume func(disk string) bool) error {
	own.Disks, theirs.Disks = maps.Clone(own.Disks), maps.Clone(theirs.Disks)
	for _, disks := range []map[string]string{own.Disks, theirs.Disks} {
		maps.DeleteFunc(disks, func(name, _ string) bool { return volume(name) })
	}
	for _, name := range slices.Sorted(maps.Keys(own.Disks)) {
		if own.Disks[name] != theirs.Disks[name] {
			return fmt.Errorf("%w: disk %q is %s here and %q on the source: the image's tag has changed",
				vmerrors.ErrInvalid, name, own.Disks[name], theirs.Disks[name])
		}
	}
	if len(own.Disks) != len(theirs.Disks) {
		return fmt.Errorf("%w: the VM has %d disks of images here and %d on the source", vmerrors.ErrInvalid, len(own.Disks), len(theirs.Disks))
	}
	if f, g := own.Firmware, theirs.Firmware; (f == nil) != (g == nil) || f != nil && *f != *g {
		return fmt.Errorf("%w: the UEFI firmware is %s here and %s on the source: install the same on both nodes", vmerrors.ErrInvalid, f, g)
	}
	if own.CPU != theirs.CPU {
		return fmt.Errorf("%w: the guest has its node's own CPU, and the nodes' differ: %q here and %.200q on the source: "+
			"name a model in spec.domain.cpu.model", vmerrors.ErrInvalid, own.CPU, theirs.CPU)
	}
	return sameCards(own.Cards, theirs.Cards)
}

// sameCards returns an error if the guest could not go on with its addresses on this node.
func sameCards(own, theirs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if own[name] != theirs[name] {
			return fmt.Errorf("%w: network card %q has the addresses %s here and %.100q on the source: "+order.OtherAddresses+
				", or on secondary networks leave IP addresses to guests", vmerrors.ErrInvalid, name, own[name], theirs[name])
		}
	}
	if len(own) != len(theirs) {
		return fmt.Errorf("%w: the VM has %d network cards with the binding bridge here and %d on the source", vmerrors.ErrInvalid, len(own), len(theirs))
	}
	return nil
}
