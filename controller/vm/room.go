package vm

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// defaultRatio is KubeVirt's maxHotplugRatio.
const defaultRatio = 4

// addRoom lets a new instance get more vCPUs and memory while it runs, as far as liveUpdateConfiguration says and the
// instance does not. The rollout strategy LiveUpdate asks for KubeVirt's defaults. An instance that cannot have a maximum,
// such as one with limits, stays as it is.
func addRoom(c config.Config, spec *kubevirt.VirtualMachineInstanceSpec) {
	given := c.Given.LiveUpdateConfiguration
	if given == nil && c.Given.VMRolloutStrategy != nil {
		given = new(kubevirt.LiveUpdateConfiguration)
	}
	if given == nil || c.Staged() {
		return
	}
	ratio := given.MaxHotplugRatio
	if ratio == 0 {
		ratio = defaultRatio
	}
	vm, problems := vmspec.Preview(field.NewPath("spec"), spec)
	if len(problems) > 0 {
		return // admission refuses it
	}
	try(spec, func(d *kubevirt.DomainSpec) {
		if d.CPU == nil {
			d.CPU = new(kubevirt.CPU)
		}
		if d.CPU.MaxSockets > 0 {
			return
		}
		most := vm.CPU.Sockets * ratio
		if s := given.MaxCpuSockets; s != nil {
			most = max(*s, vm.CPU.Sockets)
		}
		d.CPU.MaxSockets = max(min(most, vmspec.MaxVCPUs/(vm.CPU.Cores*vm.CPU.Threads)), vm.CPU.Sockets)
	})
	try(spec, func(d *kubevirt.DomainSpec) {
		if d.Memory == nil || d.Memory.Guest == nil || d.Memory.MaxGuest != nil {
			return
		}
		most := given.MaxGuest
		if most == nil {
			most = resource.NewQuantity(d.Memory.Guest.Value()*int64(ratio), resource.BinarySI)
		}
		if most.Cmp(*d.Memory.Guest) > 0 {
			d.Memory.MaxGuest = most
		}
	})
}

// try changes a spec, unless a node would then not run it.
func try(spec *kubevirt.VirtualMachineInstanceSpec, change func(*kubevirt.DomainSpec)) {
	next := spec.DeepCopy()
	change(&next.Domain)
	if _, problems := vmspec.Preview(field.NewPath("spec"), next); len(problems) == 0 {
		*spec = *next
	}
}
