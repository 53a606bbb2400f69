package pod

import (
	"maps"

	kubevirt "kubevirt.io/api/core/v1"
)

// nodeSelector is the instance's, with KubeVirt's labels of nodes that can give it processors for
// itself, and real-time scheduling.
func nodeSelector(s *kubevirt.VirtualMachineInstanceSpec) map[string]string {
	cpu := s.Domain.CPU
	if cpu == nil || !cpu.DedicatedCPUPlacement {
		return s.NodeSelector
	}
	all := map[string]string{kubevirt.CPUManager: "true"}
	if cpu.Realtime != nil {
		all[kubevirt.RealtimeLabel] = "true"
	}
	maps.Copy(all, s.NodeSelector)
	return all
}
