package move

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// check returns why a VM cannot move between nodes, nil if it can.
func (m *node) check(r record.Container) error {
	if why := m.stays(r); why != "" {
		return fmt.Errorf("the VM cannot move between nodes: %w: %s", vmerrors.ErrInvalid, why)
	}
	return nil
}

// stays says why a VM stays on its node; empty if it can move.
func (m *node) stays(r record.Container) string {
	var why []string
	add := func(is bool, format string, args ...any) {
		if is {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	s := r.Spec
	for _, n := range s.Interfaces {
		add(n.Binding != vmspec.BindingMasquerade && n.OnPodNetwork(),
			"network card %q has the binding bridge: the pod's address stays on its node; use masquerade", n.Name)
		add(slices.Contains(n.Ports, vmspec.Port{Protocol: "tcp", Number: Port}), "network card %q forwards TCP port %d, which migrations use", n.Name, Port)
	}
	for _, d := range s.Disks {
		_, reason := d.Transfer()
		add(reason != "", "disk %q %s", d.Name, reason)
	}
	add(len(s.Filesystems) > 0, "it has file systems, which are on its node")
	add(s.Firmware.UEFI != nil, "it has UEFI firmware, whose variables are not copied")
	cpu := s.CPU.Model
	add(m.o.Accelerator == domain.KVM && (cpu == "" || cpu == "host-passthrough"),
		"its CPU is the node's own: name a model in spec.domain.cpu.model")
	return strings.Join(why, "; ")
}

// copied returns the names in the guest of the disks whose content is copied.
func copied(r record.Container) []string {
	var all []string
	for _, d := range r.Spec.Disks {
		if m, _ := d.Transfer(); m == vmspec.TransferCopied {
			all = append(all, d.Target)
		}
	}
	return all
}

// contents identifies the registry disks that a VM's disks begin as.
func contents(r record.Container) map[string]string {
	all := map[string]string{}
	for name, d := range r.Disks {
		if d.Image != nil {
			all[name] = d.Image.ImageID + " " + d.Image.Path
		}
	}
	return all
}

// cards describes the addresses of the cards that other hosts reach without a pod between, by the
// cards' names. A guest that moves keeps them.
func cards(r record.Container) map[string]string {
	all := map[string]string{}
	if r.Network == nil {
		return all
	}
	for _, n := range r.Network.NICs {
		if n.Binding == netsetup.Masquerade {
			continue
		}
		text := n.GuestMAC.String()
		for _, a := range []netsetup.Addressing{n.IPv4, n.IPv6} {
			if a.Address.IsValid() {
				text += " " + a.Address.Addr().String()
			}
		}
		all[n.Card] = text
	}
	return all
}

// sameCards returns an error if the guest could not go on with its addresses on this node.
func sameCards(r record.Container, theirs map[string]string) error {
	own := cards(r)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if own[name] != theirs[name] {
			return fmt.Errorf("%w: network card %q has the addresses %s here and %.100q on the source: its network must give the same "+
				"to both pods, or leave IP addresses to guests", vmerrors.ErrInvalid, name, own[name], theirs[name])
		}
	}
	if len(own) != len(theirs) {
		return fmt.Errorf("%w: the VM has %d network cards with the binding bridge here and %d on the source", vmerrors.ErrInvalid, len(own), len(theirs))
	}
	return nil
}

// sameContents returns an error if this node's registry disks are others than the source's.
func sameContents(r record.Container, theirs map[string]string) error {
	own := contents(r)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if own[name] != theirs[name] {
			return fmt.Errorf("%w: disk %q is %s here and %q on the source: the image's tag has changed", vmerrors.ErrInvalid, name, own[name], theirs[name])
		}
	}
	if len(own) != len(theirs) {
		return fmt.Errorf("%w: the VM has %d disks of images here and %d on the source", vmerrors.ErrInvalid, len(own), len(theirs))
	}
	return nil
}
