package metrics

import (
	"cmp"
	"strconv"

	"libvirt.org/go/libvirt"
)

// domainSeries are the metrics with values from libvirt. Values that QEMU or the
// guest's balloon driver does not report have no series.
type domainSeries struct {
	vcpu, vcpuWait, vcpuDelay series
	memory                    []memorySeries
	disks                     []diskSeries
}

// memorySeries reads a value of the balloon, and whether it is set.
type memorySeries struct {
	series
	unit  float64 // bytes
	value func(*libvirt.DomainStatsBalloon) (uint64, bool)
}

// diskSeries reads a value of a disk, and whether it is set.
type diskSeries struct {
	series
	unit  float64
	value func(libvirt.DomainStatsBlock) (uint64, bool)
}

func newDomainSeries() domainSeries {
	return domainSeries{
		vcpu:      counter("kubevirt_vmi_vcpu_seconds_total", "Time that a vCPU ran on the node; state is its current state.", vmLabels("id", "state")...),
		vcpuWait:  counter("kubevirt_vmi_vcpu_wait_seconds_total", "Time that a vCPU waited for I/O.", vmLabels("id")...),
		vcpuDelay: counter("kubevirt_vmi_vcpu_delay_seconds_total", "Time that a vCPU was ready and did not get a CPU.", vmLabels("id")...),
		memory:    newMemorySeries(),
		disks:     newDiskSeries(),
	}
}

func newMemorySeries() []memorySeries {
	type balloon = libvirt.DomainStatsBalloon
	const kibibyte = 1024
	g := func(name, help string, value func(*balloon) (uint64, bool)) memorySeries {
		return memorySeries{gauge("kubevirt_vmi_memory_"+name, help, vmLabels()...), kibibyte, value}
	}
	c := func(name, help string, value func(*balloon) (uint64, bool)) memorySeries {
		return memorySeries{counter("kubevirt_vmi_memory_"+name, help, vmLabels()...), 1, value}
	}
	return []memorySeries{
		g("resident_bytes", "Resident memory of QEMU.", func(b *balloon) (uint64, bool) { return b.Rss, b.RssSet }),
		g("actual_balloon_bytes", "RAM that the balloon leaves to the guest.", func(b *balloon) (uint64, bool) { return b.Current, b.CurrentSet }),
		g("available_bytes", "Memory that the guest's kernel manages.", func(b *balloon) (uint64, bool) { return b.Available, b.AvailableSet }),
		g("unused_bytes", "Memory that the guest does not use.", func(b *balloon) (uint64, bool) { return b.Unused, b.UnusedSet }),
		g("usable_bytes", "Memory that the guest could use without swapping.", func(b *balloon) (uint64, bool) { return b.Usable, b.UsableSet }),
		g("cached_bytes", "Memory that the guest caches files in.", func(b *balloon) (uint64, bool) { return b.DiskCaches, b.DiskCachesSet }),
		g("swap_in_traffic_bytes", "Bytes that the guest has read from its swap.", func(b *balloon) (uint64, bool) { return b.SwapIn, b.SwapInSet }),
		g("swap_out_traffic_bytes", "Bytes that the guest has written to its swap.", func(b *balloon) (uint64, bool) { return b.SwapOut, b.SwapOutSet }),
		c("pgmajfault_total", "Page faults in the guest that needed its disk.", func(b *balloon) (uint64, bool) { return b.MajorFault, b.MajorFaultSet }),
		c("pgminfault_total", "Page faults in the guest that did not need its disk.", func(b *balloon) (uint64, bool) { return b.MinorFault, b.MinorFaultSet }),
	}
}

func newDiskSeries() []diskSeries {
	type block = libvirt.DomainStatsBlock
	c := func(name, help string, unit float64, value func(block) (uint64, bool)) diskSeries {
		return diskSeries{counter("kubevirt_vmi_storage_"+name, help, vmLabels("drive")...), unit, value}
	}
	const nanosecond = 1e-9
	return []diskSeries{
		c("iops_read_total", "Reads of the guest.", 1, func(b block) (uint64, bool) { return b.RdReqs, b.RdReqsSet }),
		c("iops_write_total", "Writes of the guest.", 1, func(b block) (uint64, bool) { return b.WrReqs, b.WrReqsSet }),
		c("read_traffic_bytes_total", "Bytes that the guest read.", 1, func(b block) (uint64, bool) { return b.RdBytes, b.RdBytesSet }),
		c("write_traffic_bytes_total", "Bytes that the guest wrote.", 1, func(b block) (uint64, bool) { return b.WrBytes, b.WrBytesSet }),
		c("read_times_seconds_total", "Time that reads took.", nanosecond, func(b block) (uint64, bool) { return b.RdTimes, b.RdTimesSet }),
		c("write_times_seconds_total", "Time that writes took.", nanosecond, func(b block) (uint64, bool) { return b.WrTimes, b.WrTimesSet }),
		c("flush_requests_total", "Flushes of the guest.", 1, func(b block) (uint64, bool) { return b.FlReqs, b.FlReqsSet }),
		c("flush_times_seconds_total", "Time that flushes took.", nanosecond, func(b block) (uint64, bool) { return b.FlTimes, b.FlTimesSet }),
	}
}

func (d domainSeries) collect(to sender, vm VM) {
	for i, v := range vm.Domain.VCPUs {
		id := strconv.Itoa(i)
		if v.TimeSet {
			to.send(d.vcpu, seconds(v.Time), id, vcpuState(v))
		}
		if v.WaitSet {
			to.send(d.vcpuWait, seconds(v.Wait), id)
		}
		if v.DelaySet {
			to.send(d.vcpuDelay, seconds(v.Delay), id)
		}
	}
	if b := vm.Domain.Memory; b != nil {
		for _, s := range d.memory {
			if n, ok := s.value(b); ok {
				to.send(s.series, float64(n)*s.unit)
			}
		}
	}
	for _, b := range vm.Domain.Disks {
		drive := cmp.Or(vm.DiskNames[b.Name], b.Name)
		for _, s := range d.disks {
			if n, ok := s.value(b); ok {
				to.send(s.series, float64(n)*s.unit, drive)
			}
		}
	}
}

func vcpuState(v libvirt.DomainStatsVcpu) string {
	if v.StateSet {
		switch v.State {
		case libvirt.VCPU_OFFLINE:
			return "offline"
		case libvirt.VCPU_BLOCKED:
			return "blocked"
		case libvirt.VCPU_RUNNING:
			return "running"
		}
	}
	return "unknown"
}
