package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"
)

// milliPerVCPU is what a vCPU requests where the instance doesn't say: a tenth of
// a processor, as KubeVirt's default cpuAllocationRatio has it.
const milliPerVCPU = 100

// resources are what the instance says, and where it doesn't, requests for the
// guest's memory and a share for each vCPU. QEMU's own part is the RuntimeClass's
// overhead. As with KubeVirt there are limits only where the instance has some;
// Kubernetes fills in a request from a limit.
func resources(d *kubevirt.DomainSpec) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{
		Requests: maps.Clone(d.Resources.Requests),
		Limits:   maps.Clone(d.Resources.Limits),
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if d.Memory != nil && d.Memory.Guest != nil && !given(r, corev1.ResourceMemory) {
		r.Requests[corev1.ResourceMemory] = *d.Memory.Guest
	}
	if !given(r, corev1.ResourceCPU) {
		r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(milliPerVCPU*vcpus(d), resource.DecimalSI)
	}
	if d.Memory != nil && d.Memory.Hugepages != nil {
		requestHugePages(r, d.Memory)
	}
	return r
}

// leastMemory is what a container with huge pages requests of ordinary memory, at least: a limit
// of 0 is none.
const leastMemory = 1 << 20

// requestHugePages turns what was requested for the guest's memory into huge pages. As with
// KubeVirt, what is requested beyond that memory stays.
func requestHugePages(r corev1.ResourceRequirements, m *kubevirt.Memory) {
	request, limit := r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory]
	pages := request
	if request.IsZero() {
		pages = limit
	}
	if m.Guest != nil && (pages.IsZero() || pages.Cmp(*m.Guest) > 0) {
		pages = *m.Guest
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + m.Hugepages.PageSize)
	r.Requests[name], r.Limits[name] = pages, pages
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
