package vmspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// processor reads a VMI's CPU as KubeVirt does: missing parts of a topology are 1;
// without a topology, the limit, or else the request, is the number of sockets; without
// these, the container's limit is.
func processor(
	domain *field.Path, d *kubevirt.DomainSpec, r request,
) (CPU, field.ErrorList) {
	given := kubevirt.CPU{}
	if d.CPU != nil {
		given = *d.CPU
	}
	if given.DedicatedCPUPlacement {
		r.limits.cpuQuota = 0 // it is also for processors that are no vCPUs
	}
	problems := agreeCPU(domain.Child("resources"), d.Resources, r)
	features, p := cpuFeatures(domain.Child("cpu", "features"), given.Features)
	problems = append(problems, p...)
	cpu := CPU{
		Sockets:  max(given.Sockets, 1),
		Cores:    max(given.Cores, 1),
		Threads:  max(given.Threads, 1),
		Model:    given.Model,
		Features: features,
	}
	if given.Sockets+given.Cores+given.Threads > 0 {
		// Each is at most MaxVCPUs: the product fits.
		if n := cpu.Sockets * cpu.Cores * cpu.Threads; n > MaxVCPUs {
			problems = append(problems, invalid(domain.Child("cpu"), field.OmitValueType{},
				"sockets × cores × threads makes %d vCPUs; a VM has at most %d", n, MaxVCPUs))
		}
		return cpu, problems
	}
	sockets, problem := cpuFromResources(domain, d.Resources, r)
	cpu.Sockets = sockets
	if problem != nil {
		problems = append(problems, problem)
	}
	return cpu, problems
}

func cpuFromResources(
	domain *field.Path, res kubevirt.ResourceRequirements, r request,
) (uint32, *field.Error) {
	for _, from := range []struct {
		name string
		list corev1.ResourceList
	}{{"limits", res.Limits}, {"requests", res.Requests}} {
		q, ok := from.list[corev1.ResourceCPU]
		if !ok {
			continue
		}
		if q.Value() > MaxVCPUs && from.name == "requests" && r.mounts == nil {
			return MaxVCPUs, nil // no node has so many CPUs: the pod's status will say so
		}
		if q.Value() > MaxVCPUs {
			return 1, invalid(domain.Child("resources", from.name, "cpu"), q.String(),
				"a VM has at most %d vCPUs", MaxVCPUs)
		}
		return uint32(q.Value()), nil
	}
	n, err := r.vcpus()
	if err != nil {
		return 1, refused(domain.Child("cpu"), "not given, and %s", err)
	}
	return n, nil
}

func cpuFeatures(at *field.Path, given []kubevirt.CPUFeature) ([]CPUFeature, field.ErrorList) {
	var features []CPUFeature
	var problems field.ErrorList
	seen := map[string]bool{}
	for i, f := range given {
		switch {
		case f.Name == "":
			problems = append(problems, field.Required(at.Index(i).Child("name"), ""))
		case seen[f.Name]:
			problems = append(problems, field.Duplicate(at.Index(i).Child("name"), f.Name))
		}
		seen[f.Name] = true
		if f.Policy == "" {
			f.Policy = "require" // as with KubeVirt
		}
		features = append(features, CPUFeature{Name: f.Name, Policy: f.Policy})
	}
	return features, problems
}

// agreeCPU compares a VMI's CPU resources with the limit that the kubelet enforces: both
// mean the same and must be equal.
func agreeCPU(at *field.Path, res kubevirt.ResourceRequirements, r request) field.ErrorList {
	limit, limited := res.Limits[corev1.ResourceCPU]
	want, wanted := res.Requests[corev1.ResourceCPU]
	if limited && wanted && want.Cmp(limit) > 0 {
		return field.ErrorList{invalid(at.Child("requests", "cpu"), want.String(),
			"larger than limits.cpu, %s", limit.String())}
	}
	// The kubelet rounds a quota down, to at least a millisecond.
	quota := max(limit.MilliValue()*r.limits.cpuPeriod/1000, 1000)
	if limited && r.limits.cpuQuota > 0 && r.limits.cpuQuota != quota {
		return field.ErrorList{invalid(at.Child("limits", "cpu"), limit.String(),
			"contradicts resources.limits.cpu of container %s, which is %s",
			r.container, resource.NewMilliQuantity(
				r.limits.cpuQuota*1000/r.limits.cpuPeriod, resource.DecimalSI))}
	}
	return nil
}

// guestMemory reads a VMI's memory; 0 means that it is the container's limit. As with
// KubeVirt, the request is the default of the guest's memory.
func guestMemory(
	domain *field.Path, d *kubevirt.DomainSpec, r request,
) (int64, field.ErrorList) {
	at := domain.Child("resources")
	page := hugePage(d)
	if page > 0 {
		// The container's limit of memory is for QEMU alone.
		r.limits.memory, r.limits.added = r.limits.hugepages[hugePageName(page)], 0
	}
	problems := agreeMemory(at, d.Resources, r, page)
	limit := d.Resources.Limits[corev1.ResourceMemory]
	pages, requested := d.Resources.Requests[corev1.ResourceMemory]
	if !requested {
		pages = limit
	}
	guest, path := resource.Quantity{}, at.Child("limits", "memory")
	if q, ok := d.Resources.Limits[corev1.ResourceMemory]; ok {
		guest = q
	}
	if q, ok := d.Resources.Requests[corev1.ResourceMemory]; ok {
		guest, path = q, at.Child("requests", "memory")
	}
	if d.Memory != nil && d.Memory.Guest != nil {
		guest, path = *d.Memory.Guest, domain.Child("memory", "guest")
	}
	if guest.IsZero() {
		return page, problems // as with KubeVirt, one huge page
	}
	if wanted := d.Memory == nil || d.Memory.Guest == nil; wanted && guest.Value() > maxMemory && r.mounts == nil {
		return maxMemory, problems // no node has so much: the pod's status will say so
	}
	memory, err := ram(guest.Value())
	switch {
	case err != nil:
		return 0, append(problems, invalid(path, guest.String(), "%s", err))
	case page > 0 && memory%page != 0:
		problems = append(problems, invalid(path, guest.String(), "is not a multiple of the page size, %s", bytesText(page)))
	case len(problems) > 0: // reported already
	case page > 0 && !pages.IsZero() && guest.Cmp(pages) > 0:
		problems = append(problems, invalid(path, guest.String(), "larger than the memory of resources, %s: huge pages can't be overcommitted", pages.String()))
	case page == 0 && d.Memory != nil && d.Memory.Guest != nil && !limit.IsZero() && guest.Cmp(limit) > 0:
		problems = append(problems, invalid(path, guest.String(), "larger than limits.memory, %s", limit.String()))
	case page > 0 && r.limits.memory > 0 && guest.Value() > r.limits.memory:
		problems = append(problems, invalid(path, guest.String(), "larger than resources.limits.hugepages-%s of container %s, which is %s",
			bytesText(page), r.container, bytesText(r.limits.memory)))
	case r.limits.memory > 0 && guest.Value() > r.limits.guestMemory():
		problems = append(problems, invalid(path, guest.String(),
			"larger than resources.limits.memory of container %s, which is %s",
			r.container, r.limits.memoryText()))
	}
	return memory, problems
}

func agreeMemory(at *field.Path, res kubevirt.ResourceRequirements, r request, page int64) field.ErrorList {
	limit, limited := res.Limits[corev1.ResourceMemory]
	want, wanted := res.Requests[corev1.ResourceMemory]
	if limited && wanted && want.Cmp(limit) > 0 {
		return field.ErrorList{invalid(at.Child("requests", "memory"), want.String(),
			"larger than limits.memory, %s", limit.String())}
	}
	if limited && page == 0 && r.limits.memory > 0 && limit.Value() != r.limits.guestMemory() {
		return field.ErrorList{invalid(at.Child("limits", "memory"), limit.String(),
			"contradicts resources.limits.memory of container %s, which is %s",
			r.container, r.limits.memoryText())}
	}
	return nil
}

// hugePage returns the size in bytes of a VMI's huge pages; 0 for none.
func hugePage(d *kubevirt.DomainSpec) int64 {
	if d.Memory == nil || d.Memory.Hugepages == nil {
		return 0
	}
	size, err := resource.ParseQuantity(d.Memory.Hugepages.PageSize)
	if err != nil {
		return 0
	}
	return size.Value()
}

// reservedOverhead returns the memory in bytes that QEMU gets beside the guest's, and whether QEMU
// may lock memory.
func reservedOverhead(m *kubevirt.Memory) (added int64, locked bool) {
	if m == nil || m.ReservedOverhead == nil {
		return 0, false
	}
	o := m.ReservedOverhead
	if o.AddedOverhead != nil {
		added = o.AddedOverhead.Value()
	}
	return added, o.MemLock != nil && *o.MemLock == kubevirt.MemLockRequired
}

func bytesText(n int64) string {
	return fmt.Sprint(resource.NewQuantity(n, resource.BinarySI))
}
