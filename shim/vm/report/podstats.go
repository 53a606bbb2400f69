package report

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// AddToPodStats completes containerd's stats of a VM's pod. CPU and memory are
// those of the pod's cgroup, which includes QEMU, so they stay. containerd does
// not know the VM container and its tasks, and counts traffic twice: bridge and
// tap carry what the pod's own interfaces carry.
func (p *Reports) AddToPodStats(pod *runtimeapi.PodSandboxStats) {
	id := pod.GetAttributes().GetId()
	if _, ok := p.table.Sandbox(id); !ok || pod.GetLinux() == nil {
		return
	}
	for _, v := range p.table.All(id) {
		r := v.Record()
		if r.State == record.Creating {
			continue
		}
		s, used, err := p.stats.of(v)
		if err != nil {
			table.Logger(p.stats.log, r).Warn("reading the stats of a VM failed", "error", err)
			continue
		}
		pod.Linux.Containers = append(pod.Linux.Containers, s)
		if tasks := pod.Linux.Process.GetProcessCount(); tasks != nil {
			tasks.Value += used.PIDs
		}
		leaveOut(pod.Linux.Network, r)
	}
}

// leaveOut removes a VM's bridges and taps from a pod's interfaces.
func leaveOut(n *runtimeapi.NetworkUsage, r record.Container) {
	if n == nil || r.Network == nil {
		return
	}
	own := func(i *runtimeapi.NetworkInterfaceUsage) bool {
		for _, card := range r.Network.NICs {
			if i.GetName() == card.Bridge || i.GetName() == card.Tap || i.GetName() == card.Device && card.Device != card.Interface {
				return true
			}
		}
		return false
	}
	n.Interfaces = slices.DeleteFunc(n.Interfaces, own)
	if n.DefaultInterface != nil && own(n.DefaultInterface) {
		n.DefaultInterface = nil
		if len(n.Interfaces) > 0 {
			n.DefaultInterface = n.Interfaces[0]
		}
	}
}

// AddToPodMetrics adds the running VM containers to containerd's metrics of a pod.
func (p *Reports) AddToPodMetrics(pod *runtimeapi.PodSandboxMetrics) {
	if _, ok := p.table.Sandbox(pod.GetPodSandboxId()); !ok {
		return
	}
	for _, v := range p.table.All(pod.GetPodSandboxId()) {
		r := v.Record()
		if r.State != record.Running {
			continue
		}
		used, err := p.stats.groups.Stats(r)
		if err != nil {
			table.Logger(p.stats.log, r).Warn("reading the counters of a VM failed", "error", err)
			continue
		}
		pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
			ContainerId: r.ID, Metrics: p.stats.containerMetrics(r, used),
		})
	}
}
