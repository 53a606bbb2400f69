package pod

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Size is what the guest of an instance with maximums has by its pod's limits.
type Size struct {
	// Sockets is 0 for an instance without a maximum of them, Memory, in bytes, for one without
	// a maximum of memory.
	Sockets uint32
	Memory  int64
}

// SizeIn returns what the guest has, if these limits are applied to the container of its pod. An instance's
// limits are exactly its size and what is QEMU's, see [New], and the node adds to both alike.
func SizeIn(s *kubevirt.VirtualMachineInstanceSpec, p *corev1.Pod, limits corev1.ResourceList) Size {
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	var size Size
	if cpu, limited := limits[corev1.ResourceCPU]; limited && vm.CPU.MaxSockets > 0 {
		sockets := cpu.Value() / int64(vm.CPU.Cores*vm.CPU.Threads)
		size.Sockets = uint32(max(1, min(sockets, int64(vm.CPU.MaxSockets))))
	}
	if memory, limited := limits[corev1.ResourceMemory]; limited && vm.MaxMemory > 0 {
		size.Memory = min(memory.Value()-reserved(p, vm), vm.MaxMemory)
	}
	return size
}

// Wanted returns the size that an instance's spec asks for.
func Wanted(s *kubevirt.VirtualMachineInstanceSpec) Size {
	var r corev1.ResourceRequirements
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	limitToSize(&r, vm)
	reserve(&r, vm)
	return SizeIn(s, new(corev1.Pod), r.Limits)
}

// Resize returns the pod's resources for what an instance's spec asks for: those that are too small
// rise to what the spec makes, so that what an autoscaler has added stays. Changed is false if none
// is too small.
func Resize(p *corev1.Pod, s *kubevirt.VirtualMachineInstanceSpec) (r corev1.ResourceRequirements, changed bool) {
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == Container {
			p.Spec.Containers[i].Resources.DeepCopyInto(&r)
		}
	}
	has, wants := SizeIn(s, p, r.Limits), Wanted(s)
	if has.Sockets > 0 && wants.Sockets > has.Sockets {
		more := int64(wants.Sockets-has.Sockets) * perSocket(s)
		add(r.Limits, corev1.ResourceCPU, *resource.NewQuantity(more, resource.DecimalSI))
		add(r.Requests, corev1.ResourceCPU, *resource.NewMilliQuantity(requestOf(r, more), resource.DecimalSI))
		changed = true
	}
	if has.Memory > 0 && wants.Memory > has.Memory {
		more := *resource.NewQuantity(wants.Memory-has.Memory, resource.BinarySI)
		add(r.Limits, corev1.ResourceMemory, more)
		add(r.Requests, corev1.ResourceMemory, more)
		changed = true
	}
	return r, changed
}

func perSocket(s *kubevirt.VirtualMachineInstanceSpec) int64 {
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	return int64(vm.CPU.Cores * vm.CPU.Threads)
}

// requestOf returns the request, in thousandths, that goes with so many more vCPUs: the same part
// of each as of those that the VM had.
func requestOf(r corev1.ResourceRequirements, more int64) int64 {
	limit, request := r.Limits.Cpu().Value()-more, r.Requests.Cpu().MilliValue()
	if limit <= 0 {
		return more * config.Config{}.MilliPerVCPU()
	}
	return int64(math.Ceil(float64(request) * float64(more) / float64(limit)))
}

func add(list corev1.ResourceList, name corev1.ResourceName, more resource.Quantity) {
	if q, has := list[name]; has {
		q.Add(more)
		list[name] = q
	}
}
