package instancetype

import (
	"strings"

	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// derivedRows are the fields of a preference that have the form of a VMI's.
func derivedRows() []fields.Row {
	var rows []fields.Row
	for _, r := range vmspec.Supported().Rows {
		for of, preferred := range map[string]string{
			"domain.features.acpi.": "features.preferredAcpi.", "domain.features.apic.": "features.preferredApic.",
			"domain.features.hyperv.": "features.preferredHyperv.", "domain.features.kvm.": "features.preferredKvm.",
			"domain.features.pvspinlock.": "features.preferredPvspinlock.",
			"domain.clock.utc":            "clock.preferredClockOffset.utc", "domain.clock.timezone": "clock.preferredClockOffset.timezone",
			"domain.clock.timer.": "clock.preferredTimer.",
		} {
			if rest, is := strings.CutPrefix(r.Path, of); is {
				rows = append(rows, fields.At(preferred+rest, r.Takes))
			}
		}
	}
	return rows
}

func preferFeatures(p *api.FeaturePreferences, domain *kubevirt.DomainSpec) {
	if domain.Features == nil {
		domain.Features = new(kubevirt.Features)
	}
	f := domain.Features
	if p.PreferredAcpi != nil {
		setNil(&f.ACPI.Enabled, p.PreferredAcpi.Enabled)
	}
	setNil(&f.APIC, p.PreferredApic)
	setNil(&f.KVM, p.PreferredKvm)
	setNil(&f.Pvspinlock, p.PreferredPvspinlock)
	setNil(&f.SMM, p.PreferredSmm)
	if p.PreferredHyperv != nil && f.HypervPassthrough == nil {
		preferHyperv(p.PreferredHyperv.DeepCopy(), f)
	}
}

func preferHyperv(p *kubevirt.FeatureHyperv, f *kubevirt.Features) {
	if f.Hyperv == nil {
		f.Hyperv = new(kubevirt.FeatureHyperv)
	}
	h := f.Hyperv
	setNil(&h.Relaxed, p.Relaxed)
	setNil(&h.VAPIC, p.VAPIC)
	setNil(&h.Spinlocks, p.Spinlocks)
	setNil(&h.VPIndex, p.VPIndex)
	setNil(&h.Runtime, p.Runtime)
	setNil(&h.SyNIC, p.SyNIC)
	setNil(&h.SyNICTimer, p.SyNICTimer)
	setNil(&h.Reset, p.Reset)
	setNil(&h.VendorID, p.VendorID)
	setNil(&h.Frequencies, p.Frequencies)
	setNil(&h.Reenlightenment, p.Reenlightenment)
	setNil(&h.TLBFlush, p.TLBFlush)
	setNil(&h.IPI, p.IPI)
	setNil(&h.EVMCS, p.EVMCS)
}

func preferClock(p *api.ClockPreferences, domain *kubevirt.DomainSpec) {
	if domain.Clock == nil {
		domain.Clock = new(kubevirt.Clock)
	}
	c := domain.Clock
	if o := p.PreferredClockOffset; o != nil && c.ClockOffset == (kubevirt.ClockOffset{}) {
		c.ClockOffset = *o.DeepCopy()
	}
	if p.PreferredTimer == nil {
		return
	}
	if c.Timer == nil {
		c.Timer = new(kubevirt.Timer)
	}
	t := p.PreferredTimer.DeepCopy()
	setNil(&c.Timer.HPET, t.HPET)
	setNil(&c.Timer.KVM, t.KVM)
	setNil(&c.Timer.PIT, t.PIT)
	setNil(&c.Timer.RTC, t.RTC)
	setNil(&c.Timer.Hyperv, t.Hyperv)
}
