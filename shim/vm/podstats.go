package vm

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// AddToPodStats completes containerd's stats of a pod, if that is a VM's. Its
// CPU and memory are those of the pod's cgroup, which QEMU is in: nothing is
// added to them. What containerd can't know are the VM container and its tasks,
// and that bridge and tap carry, once more, what goes through the pod's own
// interfaces.
func (m *Manager) AddToPodStats(pod *runtimeapi.PodSandboxStats) {
	id := pod.GetAttributes().GetId()
	if _, ok := m.Handler(id); !ok || pod.GetLinux() == nil {
		return
	}
	for _, c := range m.all(id) {
		r := c.record()
		if r.State == record.Creating {
			continue
		}
		s, used, err := m.stats(c)
		if err != nil {
			m.log(r).Warn("reading the stats of a VM failed", "error", err)
			continue
		}
		pod.Linux.Containers = append(pod.Linux.Containers, s)
		if tasks := pod.Linux.Process.GetProcessCount(); tasks != nil {
			tasks.Value += used.PIDs
		}
		leaveOut(pod.Linux.Network, r)
	}
}

// leaveOut takes a machine's bridges and taps out of a pod's interfaces.
func leaveOut(n *runtimeapi.NetworkUsage, r record.Container) {
	if n == nil || r.Network == nil {
		return
	}
	own := func(i *runtimeapi.NetworkInterfaceUsage) bool {
		for _, card := range r.Network.NICs {
			if i.GetName() == card.Bridge || i.GetName() == card.Tap {
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

// AddToPodMetrics adds the VM containers that run to containerd's metrics of a
// pod.
func (m *Manager) AddToPodMetrics(pod *runtimeapi.PodSandboxMetrics) {
	if _, ok := m.Handler(pod.GetPodSandboxId()); !ok {
		return
	}
	for _, c := range m.all(pod.GetPodSandboxId()) {
		r := c.record()
		if r.State != record.Running {
			continue
		}
		used, err := m.used(r)
		if err != nil {
			m.log(r).Warn("reading the counters of a VM failed", "error", err)
			continue
		}
		pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{
			ContainerId: r.ID, Metrics: m.containerMetrics(r, used),
		})
	}
}
