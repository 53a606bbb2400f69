package vmspec

import (
	"fmt"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// dedicatedRows are the fields of processors that a VM has for itself.
func dedicatedRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.cpu.dedicatedCpuPlacement", fields.Boolean),
		fields.At("domain.cpu.isolateEmulatorThread", fields.Boolean),
		fields.At("domain.cpu.numa.guestMappingPassthrough", fields.Object),
		fields.At("domain.cpu.realtime.mask", fields.Match(`\^?[0-9]{1,3}(-[0-9]{1,3})?(,\^?[0-9]{1,3}(-[0-9]{1,3})?)*`, 256)),
	}
}

// VCPUs returns the number of vCPUs.
func (c CPU) VCPUs() uint32 { return c.Sockets * c.Cores * c.Threads }

// DedicatedCPUs returns the number of the node's processors that a VM with dedicated ones needs.
func (s Spec) DedicatedCPUs() uint32 {
	n := s.CPU.VCPUs()
	if s.IOThreadPool {
		n += s.IOThreads
	}
	if s.CPU.IsolateEmulator {
		n++
	}
	return n
}

// dedicated reads what goes with processors that the VM has for itself, by KubeVirt's rules.
func (s *Spec) dedicated(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	given := d.CPU
	if given == nil {
		return nil
	}
	at := domain.Child("cpu")
	s.CPU.Dedicated, s.CPU.IsolateEmulator = given.DedicatedCPUPlacement, given.IsolateEmulatorThread
	s.CPU.NUMA = given.NUMA != nil && given.NUMA.GuestMappingPassthrough != nil
	var problems field.ErrorList
	if given.IsolateEmulatorThread && !s.CPU.Dedicated {
		problems = append(problems, refused(at.Child("isolateEmulatorThread"), "requires dedicatedCpuPlacement"))
	}
	if s.CPU.NUMA && (!s.CPU.Dedicated || s.HugePage == 0) {
		problems = append(problems, refused(at.Child("numa", "guestMappingPassthrough"), "requires dedicatedCpuPlacement and memory.hugepages"))
	}
	if given.Realtime != nil {
		problems = append(problems, s.realtime(at.Child("realtime"), given.Realtime)...)
	}
	if s.CPU.Dedicated {
		problems = append(problems, s.wholeCPUs(domain, d)...)
	}
	return problems
}

var vcpuNumber = regexp.MustCompile(`[0-9]+`)

func (s *Spec) realtime(at *field.Path, given *kubevirt.Realtime) field.ErrorList {
	var problems field.ErrorList
	if !s.CPU.Dedicated || !s.CPU.NUMA {
		problems = append(problems, refused(at, "requires dedicatedCpuPlacement and numa.guestMappingPassthrough"))
	}
	last := s.CPU.VCPUs() - 1
	s.CPU.Realtime = given.Mask
	if given.Mask == "" {
		s.CPU.Realtime = fmt.Sprintf("0-%d", last)
	}
	for _, text := range vcpuNumber.FindAllString(given.Mask, -1) {
		if n, err := strconv.ParseUint(text, 10, 32); err != nil || uint32(n) > last {
			return append(problems, invalid(at.Child("mask"), given.Mask, "the vCPUs are 0 to %d", last))
		}
	}
	return problems
}

// wholeCPUs checks that the kubelet will give the VM's container processors that no other has: as
// many as the VM needs, with equal requests and limits.
func (s *Spec) wholeCPUs(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	var problems field.ErrorList
	resources := domain.Child("resources")
	cpus := int64(s.CPU.VCPUs())
	said := d.CPU.Sockets+d.CPU.Cores+d.CPU.Threads > 0
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"limits", d.Resources.Limits}, {"requests", d.Resources.Requests}} {
		q, ok := list.of[corev1.ResourceCPU]
		if !ok {
			continue
		}
		said = true
		if q.MilliValue() != cpus*1000 {
			problems = append(problems, invalid(resources.Child(list.name, "cpu"), q.String(),
				"must be the number of vCPUs, %d, with dedicatedCpuPlacement", cpus))
		}
	}
	if !said {
		problems = append(problems, field.Required(domain.Child("cpu", "cores"),
			"or resources.requests.cpu, with dedicatedCpuPlacement"))
	}
	limit, limited := d.Resources.Limits[corev1.ResourceMemory]
	request, requested := d.Resources.Requests[corev1.ResourceMemory]
	if limited && requested && limit.Cmp(request) != 0 {
		problems = append(problems, invalid(resources.Child("requests", "memory"), request.String(),
			"must equal limits.memory, %s, with dedicatedCpuPlacement", limit.String()))
	}
	if d.CPU.Threads > 2 {
		problems = append(problems, invalid(domain.Child("cpu", "threads"), d.CPU.Threads, "must be at most 2 with dedicatedCpuPlacement"))
	}
	return problems
}

// checkCPUSet refuses a VM whose container has no processors for itself.
func (s *Spec) checkCPUSet(r request) error {
	if s.CPU.Dedicated && r.cpuset == "" {
		return fmt.Errorf("container %s: dedicatedCpuPlacement: the kubelet assigned no processors; set its CPU manager's policy "+
			"to static, and label only such nodes %s=true", r.container, kubevirt.CPUManager)
	}
	return nil
}
