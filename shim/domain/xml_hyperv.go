package domain

import "libvirt.org/go/libvirtxml"

// hyperv returns the enlightenments of a guest; nil for none. TCG has none of them, and a guest does without.
func hyperv(desc Description) *libvirtxml.DomainFeatureHyperV {
	h := desc.Spec.Board.Hyperv
	if h == nil || desc.Accelerator == TCG {
		return nil
	}
	if h.Passthrough {
		return &libvirtxml.DomainFeatureHyperV{Mode: "passthrough"}
	}
	f := &libvirtxml.DomainFeatureHyperV{
		Relaxed: on(h.Relaxed), VAPIC: on(h.VAPIC), VPIndex: on(h.VPIndex), Runtime: on(h.Runtime), Synic: on(h.SyNIC),
		Reset: on(h.Reset), Frequencies: on(h.Frequencies), ReEnlightenment: on(h.Reenlightenment), IPI: on(h.IPI), EVMCS: on(h.EVMCS),
	}
	if h.SyNICTimer {
		f.STimer = &libvirtxml.DomainFeatureHyperVSTimer{DomainFeatureState: *on(true), Direct: on(h.DirectTimer)}
	}
	if h.TLBFlush {
		f.TLBFlush = &libvirtxml.DomainFeatureHyperVTLBFlush{
			DomainFeatureState: *on(true), Direct: on(h.DirectFlush), Extended: on(h.ExtendedFlush),
		}
	}
	if h.Retries > 0 {
		f.Spinlocks = &libvirtxml.DomainFeatureHyperVSpinlocks{DomainFeatureState: *on(true), Retries: uint(h.Retries)}
	}
	if h.VendorID != "" {
		f.VendorId = &libvirtxml.DomainFeatureHyperVVendorId{DomainFeatureState: *on(true), Value: h.VendorID}
	}
	return f
}

// on is the state of a feature that is on; nil, which leaves it out, for one that is not.
func on(is bool) *libvirtxml.DomainFeatureState {
	if !is {
		return nil
	}
	return &libvirtxml.DomainFeatureState{State: "on"}
}

// pvSpinlock is what a spec says of paravirtual spinlocks, which TCG does not have.
func pvSpinlock(desc Description) *libvirtxml.DomainFeatureState {
	offered := desc.Spec.Board.PVSpinlock
	switch {
	case offered == nil || desc.Accelerator == TCG:
		return nil
	case *offered:
		return on(true)
	}
	return &libvirtxml.DomainFeatureState{State: "off"}
}

// hiddenKVM hides the hypervisor's signature from the guest.
func hiddenKVM(desc Description) *libvirtxml.DomainFeatureKVM {
	if !desc.Spec.Board.HideKVM {
		return nil
	}
	return &libvirtxml.DomainFeatureKVM{Hidden: on(true)}
}

// apic returns the interrupt controller, which every machine has. TCG has no paravirtual end of
// interrupts, and a guest does without.
func apic(desc Description) *libvirtxml.DomainFeatureAPIC {
	if desc.Spec.Board.EndOfInterrupt && desc.Accelerator != TCG {
		return &libvirtxml.DomainFeatureAPIC{EOI: "on"}
	}
	return &libvirtxml.DomainFeatureAPIC{}
}
