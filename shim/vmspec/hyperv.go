package vmspec

import (
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Board are features of a guest's board beside ACPI. The zero value is what most guests have.
type Board struct {
	// Hyperv are the enlightenments that a Windows guest uses; nil for none.
	Hyperv *Hyperv `json:"hyperv,omitempty"`
	// HideKVM hides KVM from the guest.
	HideKVM bool `json:"hideKVM,omitempty"`
	// PVSpinlock says whether the guest is offered paravirtual spinlocks; nil for QEMU's choice.
	PVSpinlock *bool `json:"pvSpinlock,omitempty"`
	// EndOfInterrupt lets the guest end interrupts without leaving to the hypervisor.
	EndOfInterrupt bool `json:"endOfInterrupt,omitempty"`
}

// Hyperv are the enlightenments of Microsoft's hypervisor that a guest is offered, see libvirt's
// documentation of the element hyperv.
type Hyperv struct {
	// Passthrough offers all that the node has. Then nothing else is set.
	Passthrough bool `json:"passthrough,omitempty"`

	Relaxed         bool `json:"relaxed,omitempty"`
	VAPIC           bool `json:"vapic,omitempty"`
	VPIndex         bool `json:"vpIndex,omitempty"`
	Runtime         bool `json:"runtime,omitempty"`
	SyNIC           bool `json:"synic,omitempty"`
	SyNICTimer      bool `json:"synicTimer,omitempty"`
	DirectTimer     bool `json:"directTimer,omitempty"`
	Reset           bool `json:"reset,omitempty"`
	Frequencies     bool `json:"frequencies,omitempty"`
	Reenlightenment bool `json:"reenlightenment,omitempty"`
	TLBFlush        bool `json:"tlbFlush,omitempty"`
	// DirectFlush and ExtendedFlush are variants of TLBFlush. A guest does without them where libvirt
	// does not have them: before 11.0.
	DirectFlush   bool `json:"directFlush,omitempty"`
	ExtendedFlush bool `json:"extendedFlush,omitempty"`
	IPI           bool `json:"ipi,omitempty"`
	EVMCS         bool `json:"evmcs,omitempty"`
	// Retries are those of a spinlock before the guest reports it; 0 turns this off.
	Retries uint32 `json:"retries,omitempty"`
	// VendorID is the hypervisor's name for the guest; empty means QEMU's.
	VendorID string `json:"vendorID,omitempty"`
}

// leastRetries are KubeVirt's default, and its least.
const leastRetries = 4096

// boardRows are the fields of [Board].
func boardRows() []fields.Row {
	rows := []fields.Row{
		fields.At("domain.features.hypervPassthrough.enabled", fields.Boolean),
		fields.At("domain.features.hyperv.spinlocks.spinlocks", fields.Integer(leastRetries, 1<<31-1)),
		fields.At("domain.features.hyperv.synictimer.direct.enabled", fields.Boolean),
		fields.At("domain.features.hyperv.vendorid.vendorid", fields.Match(`[A-Za-z0-9 ._-]{1,12}`, 12)),
		fields.At("domain.features.hyperv.tlbflush.direct.enabled", fields.Boolean),
		fields.At("domain.features.hyperv.tlbflush.extended.enabled", fields.Boolean),
		fields.At("domain.features.kvm.hidden", fields.Boolean),
		fields.At("domain.features.pvspinlock.enabled", fields.Boolean),
	}
	for _, name := range []string{
		"relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "synictimer", "reset", "vendorid", "frequencies",
		"reenlightenment", "tlbflush", "ipi", "evmcs",
	} {
		rows = append(rows, fields.At("domain.features.hyperv."+name+".enabled", fields.Boolean))
	}
	return rows
}

// readBoard reads a VMI's features.
func readBoard(f *kubevirt.Features) Board {
	if f == nil {
		return Board{}
	}
	b := Board{HideKVM: f.KVM != nil && f.KVM.Hidden, EndOfInterrupt: f.APIC != nil && f.APIC.EndOfInterrupt}
	if f.Pvspinlock != nil {
		b.PVSpinlock = new(isOr(f.Pvspinlock.Enabled, true))
	}
	if p := f.HypervPassthrough; p != nil && isOr(p.Enabled, true) {
		b.Hyperv = &Hyperv{Passthrough: true}
		return b
	}
	if f.Hyperv != nil {
		b.Hyperv = readHyperv(*f.Hyperv)
	}
	return b
}

// readHyperv adds what an enlightenment needs, as KubeVirt does.
func readHyperv(f kubevirt.FeatureHyperv) *Hyperv {
	h := &Hyperv{
		Relaxed: isOn(f.Relaxed), VAPIC: isOn(f.VAPIC), VPIndex: isOn(f.VPIndex), Runtime: isOn(f.Runtime), SyNIC: isOn(f.SyNIC),
		Reset: isOn(f.Reset), Frequencies: isOn(f.Frequencies), Reenlightenment: isOn(f.Reenlightenment), IPI: isOn(f.IPI),
		EVMCS: isOn(f.EVMCS),
	}
	if t := f.SyNICTimer; t != nil && isOn(&t.FeatureState) {
		h.SyNICTimer, h.DirectTimer = true, isOn(t.Direct)
	}
	if t := f.TLBFlush; t != nil && isOn(&t.FeatureState) {
		h.TLBFlush, h.DirectFlush, h.ExtendedFlush = true, isOn(t.Direct), isOn(t.Extended)
	}
	if s := f.Spinlocks; s != nil && isOn(&s.FeatureState) {
		h.Retries = leastRetries
		if s.Retries != nil {
			h.Retries = *s.Retries
		}
	}
	if v := f.VendorID; v != nil && isOn(&v.FeatureState) {
		h.VendorID = v.VendorID
	}
	h.SyNIC = h.SyNIC || h.SyNICTimer
	h.VPIndex = h.VPIndex || h.SyNIC || h.TLBFlush || h.IPI
	h.VAPIC = h.VAPIC || h.EVMCS
	return h
}

func isOn(f *kubevirt.FeatureState) bool { return f != nil && isOr(f.Enabled, true) }
