package vmspec

import (
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Clock is the guest's clock. The zero value is in UTC, with the usual timers.
type Clock struct {
	// Timezone is that of the guest's real-time clock, a name of the IANA time zone database; empty means UTC.
	Timezone string `json:"timezone,omitempty"`
	// Offset is that of the guest's real-time clock from UTC, in seconds.
	Offset int `json:"offset,omitempty"`
	// Timers replace usual ones of the same name, or are added to them.
	Timers []Timer `json:"timers,omitempty"`
}

// Timer is one of a guest's timers.
type Timer struct {
	// Name is libvirt's: rtc, pit, hpet, kvmclock or hypervclock.
	Name string `json:"name"`
	// Absent keeps the timer away.
	Absent bool `json:"absent,omitempty"`
	// TickPolicy says what happens to a tick that came too late; empty means the usual.
	TickPolicy string `json:"tickPolicy,omitempty"`
	// Track is the time that the timer follows, guest or wall; empty means QEMU's choice.
	Track string `json:"track,omitempty"`
}

// The names of timers.
const (
	TimerRTC    = "rtc"
	TimerPIT    = "pit"
	TimerHPET   = "hpet"
	TimerKVM    = "kvmclock"
	TimerHyperv = "hypervclock"
)

// maxOffset is a day: more is no time zone.
const maxOffset = 24 * 60 * 60

// clockRows are the fields of [Clock], with the tick policies that QEMU has.
func clockRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.clock.utc.offsetSeconds", fields.Integer(-maxOffset, maxOffset)),
		fields.At("domain.clock.timezone", fields.Match(`[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}`, 64)),
		fields.At("domain.clock.timer.hpet.present", fields.Boolean),
		fields.At("domain.clock.timer.hpet.tickPolicy", fields.OneOf("delay")),
		fields.At("domain.clock.timer.pit.present", fields.Boolean),
		fields.At("domain.clock.timer.pit.tickPolicy", fields.OneOf("delay", "discard")),
		fields.At("domain.clock.timer.rtc.present", fields.Boolean),
		fields.At("domain.clock.timer.rtc.tickPolicy", fields.OneOf("delay", "catchup")),
		fields.At("domain.clock.timer.rtc.track", fields.OneOf("guest", "wall")),
		fields.At("domain.clock.timer.kvm.present", fields.Boolean),
		fields.At("domain.clock.timer.hyperv.present", fields.Boolean),
	}
}

// readClock reads a VMI's clock. As with KubeVirt, UTC goes before a time zone.
func readClock(c *kubevirt.Clock) Clock {
	if c == nil {
		return Clock{}
	}
	var clock Clock
	switch {
	case c.UTC != nil && c.UTC.OffsetSeconds != nil:
		clock.Offset = *c.UTC.OffsetSeconds
	case c.UTC == nil && c.Timezone != nil:
		clock.Timezone = string(*c.Timezone)
	}
	if c.Timer == nil {
		return clock
	}
	t := c.Timer
	add := func(name string, present *bool, tickPolicy, track string) {
		clock.Timers = append(clock.Timers, Timer{name, !isOr(present, true), tickPolicy, track})
	}
	if t.RTC != nil {
		add(TimerRTC, t.RTC.Enabled, string(t.RTC.TickPolicy), string(t.RTC.Track))
	}
	if t.PIT != nil {
		add(TimerPIT, t.PIT.Enabled, string(t.PIT.TickPolicy), "")
	}
	if t.HPET != nil {
		add(TimerHPET, t.HPET.Enabled, string(t.HPET.TickPolicy), "")
	}
	if t.KVM != nil {
		add(TimerKVM, t.KVM.Enabled, "", "")
	}
	if t.Hyperv != nil {
		add(TimerHyperv, t.Hyperv.Enabled, "", "")
	}
	return clock
}
