package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Surroundings are what the cluster says of an instance's resources and nodes.
type Surroundings struct {
	// Config is what the administrator chose.
	Config config.Config
	// Overhead is the memory in bytes that the RuntimeClass adds to each pod; nil if there is no such class.
	Overhead *int64
	// LimitCPU says that a quota counts limits of CPU, or that the configuration limits the namespace, and that the
	// instance has no limit.
	LimitCPU bool
	// MemoryRatio is that of the memory limit to the request, if a quota counts limits of
	// memory and the instance has none; 0 otherwise.
	MemoryRatio float64
	// LabelKinds are those of [LabelKinds] that some node has.
	LabelKinds []string
	// NetworkResources are the extended resources of networks of Multus, by the names that the
	// instance has for them.
	NetworkResources map[string]string
	// Source are the labels of the node from which the guest comes by a migration.
	Source map[string]string
	// Machine is the type of the board of a guest that comes by a migration; empty for others.
	Machine string
	// StatePVC is the name of the PVC with the instance's persistent state; empty for none.
	StatePVC string
	// ResumePVC is the name of the PVC with the memory from which the guest goes on; empty for a guest
	// that boots or migrates.
	ResumePVC string
}

// resources are what the instance says, and where it doesn't, requests for the
// guest's memory and a share for each vCPU. QEMU's own part is the RuntimeClass's
// overhead, and what [withOverhead] reserves. As with KubeVirt there are limits only where the instance has some, where
// a quota requires them, and with dedicated CPUs; Kubernetes fills in a request from
// a limit.
func resources(s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) corev1.ResourceRequirements {
	d := &s.Domain
	r := corev1.ResourceRequirements{
		Requests: maps.Clone(d.Resources.Requests),
		Limits:   maps.Clone(d.Resources.Limits),
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if d.Memory != nil && d.Memory.Guest != nil && !given(r, corev1.ResourceMemory) {
		r.Requests[corev1.ResourceMemory] = around.Config.MemoryRequest(d)
	}
	if !given(r, corev1.ResourceCPU) {
		r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(around.Config.MilliPerVCPU()*vcpus(d), resource.DecimalSI)
	}
	vm, _ := vmspec.Preview(field.NewPath("spec"), s)
	if vm.CPU.Dedicated {
		dedicate(&r, vm)
	}
	if vm.HugePage > 0 {
		requestHugePages(&r, d.Memory)
	}
	limitToSize(&r, vm)
	limitAsQuotasRequire(&r, vm, around)
	requestHostDevices(&r, vm.HostDevices, s, around)
	if d.Resources.OvercommitGuestOverhead && vm.HugePage == 0 && !vm.CPU.Dedicated && around.Overhead != nil {
		request := r.Requests.Memory().Value() - *around.Overhead - overhead(s, around)
		r.Requests[corev1.ResourceMemory] = *resource.NewQuantity(max(request, leastMemory), resource.BinarySI)
	}
	reserve(&r, vm)
	reservePlugins(&r, s, around.Config.Bindings())
	return r
}

// reserve adds the overhead that the instance reserves for QEMU.
func reserve(r *corev1.ResourceRequirements, vm vmspec.Spec) {
	if vm.AddedOverhead == 0 {
		return
	}
	more := *resource.NewQuantity(vm.AddedOverhead, resource.BinarySI)
	add(r.Requests, corev1.ResourceMemory, more)
	add(r.Limits, corev1.ResourceMemory, more)
}

// dedicate requests whole CPUs, and as much memory as the limit is, so that the pod is Guaranteed
// and the kubelet gives it CPUs that no other container uses. The iothreads of a supplemental
// pool, and QEMU's other threads if the instance isolates them, have separate CPUs.
func dedicate(r *corev1.ResourceRequirements, vm vmspec.Spec) {
	cpus := *resource.NewQuantity(int64(vm.DedicatedCPUs()), resource.DecimalSI)
	memory := r.Requests[corev1.ResourceMemory]
	if memory.IsZero() {
		memory = r.Limits[corev1.ResourceMemory]
	}
	setLimit(r, corev1.ResourceCPU, cpus)
	setLimit(r, corev1.ResourceMemory, memory)
	r.Requests[corev1.ResourceCPU], r.Requests[corev1.ResourceMemory] = cpus, memory
}

// limitToSize adds the limits by which the node learns what a VM with a maximum should have: the
// guest gets more when a limit rises.
func limitToSize(r *corev1.ResourceRequirements, vm vmspec.Spec) {
	if vm.CPU.MaxSockets > 0 {
		setLimit(r, corev1.ResourceCPU, *resource.NewQuantity(int64(vm.CPU.VCPUs()), resource.DecimalSI))
	}
	if vm.MaxMemory > 0 && vm.Memory > 0 {
		setLimit(r, corev1.ResourceMemory, *resource.NewQuantity(vm.Memory, resource.BinarySI))
	}
}

// limitAsQuotasRequire adds the limits without which a quota refuses the pod. The limit of
// memory never keeps the guest from its RAM.
func limitAsQuotasRequire(r *corev1.ResourceRequirements, vm vmspec.Spec, around Surroundings) {
	if _, limited := r.Limits[corev1.ResourceCPU]; around.LimitCPU && !limited {
		threads := uint32(0)
		if vm.IOThreadPool {
			threads = vm.IOThreads
		}
		setLimit(r, corev1.ResourceCPU, *resource.NewQuantity(int64(vm.CPU.VCPUs()+threads), resource.DecimalSI))
	}
	if _, limited := r.Limits[corev1.ResourceMemory]; around.MemoryRatio > 0 && !limited {
		bytes := int64(float64(r.Requests.Memory().Value()) * around.MemoryRatio)
		if vm.HugePage == 0 {
			bytes = max(bytes, vm.Memory)
		}
		setLimit(r, corev1.ResourceMemory, *resource.NewQuantity(bytes, resource.BinarySI))
	}
}

func setLimit(r *corev1.ResourceRequirements, name corev1.ResourceName, to resource.Quantity) {
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	r.Limits[name] = to
}

// leastMemory is what a container requests of ordinary memory, at least: a limit of 0 is none.
const leastMemory = 1 << 20

// requestHugePages turns what was requested for the guest's memory into huge pages. As with
// KubeVirt, what is requested beyond that memory stays.
func requestHugePages(r *corev1.ResourceRequirements, m *kubevirt.Memory) {
	request, limit := r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory]
	pages := request
	if request.IsZero() {
		pages = limit
	}
	if m.Guest != nil && (pages.IsZero() || pages.Cmp(*m.Guest) > 0) {
		pages = *m.Guest
	}
	name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + m.Hugepages.PageSize)
	setLimit(r, name, pages)
	r.Requests[name] = pages
	rest := func(q resource.Quantity) resource.Quantity {
		return *resource.NewQuantity(max(q.Value()-pages.Value(), leastMemory), resource.BinarySI)
	}
	r.Requests[corev1.ResourceMemory] = rest(request)
	if !limit.IsZero() {
		r.Limits[corev1.ResourceMemory] = rest(limit)
	}
}

func given(r corev1.ResourceRequirements, name corev1.ResourceName) bool {
	_, requested := r.Requests[name]
	_, limited := r.Limits[name]
	return requested || limited
}

func vcpus(d *kubevirt.DomainSpec) int64 {
	if d.CPU == nil {
		return 1
	}
	n := func(part uint32) int64 { return max(int64(part), 1) }
	return n(d.CPU.Sockets) * n(d.CPU.Cores) * n(d.CPU.Threads)
}
