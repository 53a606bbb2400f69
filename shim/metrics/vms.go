package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// vms are the metrics of VMs that run. Their first labels are KubeVirt's.
type vms struct {
	node *nodeName

	started, agent, overlay, ram series
	cpu, cpuUser, cpuSystem      series
	cgroupMemory, cgroupSwap     series
	throttled                    series
	domain                       domainSeries
	cards                        cardSeries
	migration                    migrationSeries
	filesystems                  filesystemSeries
}

// vmLabels are the labels of each metric of a VM, before its own.
func vmLabels(more ...string) []string {
	return append([]string{"node", "namespace", "name"}, more...)
}

func newVMs(node *nodeName) vms {
	g := func(name, help string) series { return gauge(name, help, vmLabels()...) }
	c := func(name, help string) series { return counter(name, help, vmLabels()...) }
	return vms{
		node:         node,
		started:      g("nodevirt_vm_start_time_seconds", "When the VM was started, in seconds since the epoch."),
		agent:        g("nodevirt_vm_agent_connected", "1 if a guest agent has the VM's port open, 0 if not; absent if unknown."),
		overlay:      g("nodevirt_vm_overlay_used_bytes", "Size of the guest's writes on the node's disk."),
		ram:          g("kubevirt_vmi_memory_domain_bytes", "RAM of the VM at boot."),
		cpu:          c("kubevirt_vmi_cpu_usage_seconds_total", "CPU time of QEMU and of the VM's DHCP server."),
		cpuUser:      c("kubevirt_vmi_cpu_user_usage_seconds_total", "CPU time of QEMU and of the VM's DHCP server in user mode."),
		cpuSystem:    c("kubevirt_vmi_cpu_system_usage_seconds_total", "CPU time of QEMU and of the VM's DHCP server in the kernel."),
		throttled:    c("nodevirt_vm_cpu_throttled_seconds_total", "Time that the VM waited because its CPU limit was reached."),
		cgroupMemory: g("nodevirt_vm_memory_working_set_bytes", "Memory of QEMU and of the VM's DHCP server that can't be reclaimed at once."),
		cgroupSwap:   g("nodevirt_vm_memory_swap_bytes", "The VM's memory that the node has swapped out."),
		domain:       newDomainSeries(),
		cards:        newCardSeries(),
		migration:    newMigrationSeries(),
		filesystems:  newFilesystemSeries(),
	}
}

// collect sends each VM's metrics. If several VMs have the same name, as pods
// created with crictl can, it sends those of the VM that was started last: two
// series with the same labels would fail the scrape.
func (v vms) collect(to chan<- prometheus.Metric, all []VM) {
	type name struct{ namespace, name string }
	last := map[name]VM{}
	for _, vm := range all {
		n := name{vm.Namespace, vm.Name}
		if other, ok := last[n]; !ok || other.Started.Before(vm.Started) {
			last[n] = vm
		}
	}
	for _, vm := range last {
		v.collectOne(sender{to, []string{v.node.get(), vm.Namespace, vm.Name}}, vm)
	}
}

func (v vms) collectOne(to sender, vm VM) {
	to.send(v.started, float64(vm.Started.UnixMilli())/1000)
	to.send(v.ram, float64(vm.RAM))
	to.send(v.overlay, float64(vm.Overlay))
	if vm.Agent != nil {
		to.send(v.agent, number(*vm.Agent))
	}
	if g := vm.Group; g != nil {
		to.send(v.cpu, seconds(g.CPU))
		to.send(v.cpuUser, seconds(g.CPUUser))
		to.send(v.cpuSystem, seconds(g.CPUSystem))
		to.send(v.throttled, seconds(g.Throttled))
		to.send(v.cgroupMemory, float64(g.WorkingSet))
		to.send(v.cgroupSwap, float64(g.Swap))
	}
	if vm.Domain != nil {
		v.domain.collect(to, vm)
	}
	v.cards.collect(to, vm.Cards)
	v.filesystems.collect(to, vm.Filesystems)
	if vm.Migration != nil {
		v.migration.collect(to, *vm.Migration)
	}
}

// sender sends the metrics of one VM.
type sender struct {
	to     chan<- prometheus.Metric
	labels []string
}

func (s sender) send(metric series, value float64, more ...string) {
	metric.send(s.to, value, append(append([]string(nil), s.labels...), more...)...)
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
