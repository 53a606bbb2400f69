package domain

import (
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// clock returns the guest's clock. The usual timers' policies are those that libvirt's
// documentation recommends for guests that keep their own time. Usually there is no HPET:
// its periodic interrupts cost the node processor time.
func clock(desc Description) *libvirtxml.DomainClock {
	c := &libvirtxml.DomainClock{Offset: "utc", Timer: []libvirtxml.DomainTimer{
		{Name: vmspec.TimerRTC, TickPolicy: "catchup"},
		{Name: vmspec.TimerPIT, TickPolicy: "delay"},
		{Name: vmspec.TimerHPET, Present: "no"},
	}}
	if isARM(desc) { // it has none of these
		c.Timer = nil
	}
	given := desc.Spec.Clock
	switch {
	case given.Timezone != "":
		c.Offset, c.TimeZone = "timezone", given.Timezone
	case given.Offset != 0:
		c.Offset, c.Basis, c.Adjustment = "variable", "utc", strconv.Itoa(given.Offset)
	}
	for _, t := range given.Timers {
		if desc.Accelerator == TCG && (t.Name == vmspec.TimerKVM || t.Name == vmspec.TimerHyperv) {
			continue // it has neither
		}
		i := slices.IndexFunc(c.Timer, func(usual libvirtxml.DomainTimer) bool { return usual.Name == t.Name })
		if i < 0 {
			i = len(c.Timer)
			c.Timer = append(c.Timer, libvirtxml.DomainTimer{Name: t.Name})
		}
		setTimer(&c.Timer[i], t)
	}
	return c
}

func setTimer(timer *libvirtxml.DomainTimer, to vmspec.Timer) {
	timer.Track = to.Track
	if to.TickPolicy != "" {
		timer.TickPolicy = to.TickPolicy
	}
	timer.Present = "yes"
	if to.Absent {
		timer.Present, timer.TickPolicy = "no", ""
	}
}
