package move

import (
	"fmt"
	"slices"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// check returns why a VM cannot move between nodes, nil if it can.
func (m *node) check(r record.Container) error {
	if r.Saving != nil {
		return fmt.Errorf("%w: the guest is paused while its memory is saved", vmerrors.ErrState)
	}
	for _, p := range r.Plugged {
		if p.State != record.Attached {
			return fmt.Errorf("%w: disk %q is being attached or detached: wait until that has ended", vmerrors.ErrState, p.Disk.Name)
		}
	}
	for _, c := range r.Cards {
		if c.State != record.Attached {
			return fmt.Errorf("%w: network card %q is being attached or detached: wait until that has ended", vmerrors.ErrState, c.Card.Name)
		}
	}
	if why := m.stays(r); why != "" {
		return fmt.Errorf("the VM cannot move between nodes: %w: %s", vmerrors.ErrInvalid, why)
	}
	return nil
}

// stays says why a VM stays on its node; empty if it can move.
func (m *node) stays(r record.Container) string {
	why := Bound(r)
	if Port(r.Spec) == 0 {
		why = append(why, fmt.Sprintf("its network cards forward all TCP ports from %d on, of which migrations use one", firstPort))
	}
	for _, d := range r.AsStarted().Spec.Disks {
		if _, reason := d.Transfer(); reason != "" {
			why = append(why, fmt.Sprintf("disk %q %s", d.Name, reason))
		}
	}
	for _, p := range r.Plugged {
		if len(p.Order) == 0 {
			why = append(why, fmt.Sprintf("disk %q was attached by an older version of nodevirt, which did not record what a migration needs: "+
				"detach it, and attach it again", p.Disk.Name))
		}
	}
	if r.Spec.TakesPodAddress() && !vmspec.AddressMoves(r.Sandbox.Value.GetAnnotations()) {
		why = append(why, addressStays(r.Spec))
	}
	return strings.Join(why, "; ")
}

// addressStays says why the pod's address, which the guest has, stays on its node.
func addressStays(s vmspec.Spec) string {
	for _, i := range s.Interfaces {
		if i.Plugin != "" && i.OnPodNetwork() {
			return fmt.Sprintf("its card on the pod network has network binding plug-in %q, whose registration in the KubeVirt object has no migration", i.Plugin)
		}
	}
	return fmt.Sprintf("its card on the pod network has the binding bridge: the pod's address stays on its node; "+
		"use masquerade, or the annotation %s if the network can give the address to another pod",
		kubevirt.AllowPodBridgeNetworkLiveMigrationAnnotation)
}

// Bound says what, beside its disks, binds a VM to its node and its pod, so that its guest can't go
// on elsewhere.
func Bound(r record.Container) []string {
	var why []string
	add := func(is bool, format string, args ...any) {
		if is {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	s := r.Spec
	add(r.Dumping(), "its memory is being dumped")
	add(r.BackingUp(), "its disks are being backed up")
	add(len(s.Filesystems) > 0, "it has file systems, which are on its node")
	add(len(s.HostDevices) > 0, "it has devices of its node")
	add(s.LaunchSecurity.Encrypts(), "its memory is encrypted for its node")
	add(s.VSOCK, "it has a VSOCK, whose CID is its node's")
	add(s.Board.Hyperv != nil && s.Board.Hyperv.Passthrough, "it has all Hyper-V features of its node: name them in spec.domain.features.hyperv")
	return why
}

// copied returns the names in the guest of the disks whose content is copied: those on no volume, and those that
// are copied to other PVCs.
func copied(r record.Container, to []string) []string {
	var all []string
	for _, d := range r.AsStarted().Spec.Disks {
		if m, _ := d.Transfer(); m == vmspec.TransferCopied || slices.Contains(to, d.Name) {
			all = append(all, d.Target)
		}
	}
	return all
}
