package measures

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	requests = "vm_resource_requests"
	limits   = "vm_resource_limits"
	memory   = "memory"
	bytes    = "bytes"
	cpu      = "cpu"
	cores    = "cores"
	// effective is what the guest gets.
	effective = "guest_effective"
)

// sendResources sends what a VM asks for. The part of its instance type is known of its instance alone: while there is none,
// the template counts, without an effective size.
func (m machines) sendResources(send sender, vm *kubevirt.VirtualMachine, all *objects) {
	d, complete := &vm.Spec.Template.Spec.Domain, vm.Spec.Instancetype == nil
	if !complete {
		if vmi := all.instance(client.ObjectKeyFromObject(vm)); vmi != nil && metav1.IsControlledBy(vmi, vm) {
			d, complete = &vmi.Spec.Domain, true
		}
	}
	request := func(value float64, kind, unit, source string) {
		if value > 0 {
			send(m.set[requests], value, vm.Name, vm.Namespace, kind, unit, source)
		}
	}
	limit := func(value float64, kind, unit string) {
		if value > 0 {
			send(m.set[limits], value, vm.Name, vm.Namespace, kind, unit)
		}
	}
	asked := float64(d.Resources.Requests.Memory().Value())
	guest, page := guestMemory(d.Memory)
	request(asked, memory, bytes, "domain")
	request(guest, memory, bytes, "guest")
	request(page, memory, bytes, "hugepages")
	if complete {
		request(cmp.Or(guest, asked, float64(d.Resources.Limits.Memory().Value())), memory, bytes, effective)
	}
	limit(float64(d.Resources.Limits.Memory().Value()), memory, bytes)

	asked = d.Resources.Requests.Cpu().AsApproximateFloat64()
	request(asked, cpu, cores, "requests")
	limit(d.Resources.Limits.Cpu().AsApproximateFloat64(), cpu, cores)
	c, source := cmp.Or(d.CPU, &kubevirt.CPU{}), "domain"
	if d.CPU == nil && asked == 0 && complete {
		c, source = &kubevirt.CPU{Cores: 1, Threads: 1, Sockets: 1}, "default"
	}
	request(float64(c.Cores), cpu, cores, source)
	request(float64(c.Threads), cpu, "threads", source)
	request(float64(c.Sockets), cpu, "sockets", source)
	if complete {
		request(float64(max(c.Cores, 1))*float64(max(c.Threads, 1))*float64(max(c.Sockets, 1)), cpu, cores, effective)
	}
}

// guestMemory returns the size of a guest's memory and of its pages in bytes, 0 for what is not said.
func guestMemory(m *kubevirt.Memory) (guest, page float64) {
	if m == nil {
		return 0, 0
	}
	if m.Guest != nil {
		guest = float64(m.Guest.Value())
	}
	if m.Hugepages != nil {
		if size, err := resource.ParseQuantity(m.Hugepages.PageSize); err == nil {
			page = float64(size.Value())
		}
	}
	return guest, page
}
