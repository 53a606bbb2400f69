package vmspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// MemoryStep is the unit, in bytes, in which a running guest gets RAM: the size of a Linux
// guest's blocks of memory, which it can only use whole.
const MemoryStep = 128 << 20

// maximumRows are the fields of what a VM can get while it runs.
func maximumRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.cpu.maxSockets", fields.Integer(0, MaxVCPUs)),
		fields.At("domain.memory.maxGuest", fields.Quantity),
	}
}

// MaxVCPUs returns the number of vCPUs that the running VM can get at most.
func (c CPU) MaxVCPUs() uint32 { return max(c.MaxSockets, c.Sockets) * c.Cores * c.Threads }

// maximums reads what the VM can get while it runs.
func (s *Spec) maximums(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	var problems field.ErrorList
	if d.CPU != nil && d.CPU.MaxSockets > 0 {
		problems = append(problems, s.maxSockets(domain.Child("cpu", "maxSockets"), d.CPU.MaxSockets)...)
		problems = append(problems, unlimited(domain, d, corev1.ResourceCPU, "maxSockets")...)
	}
	if d.Memory != nil && d.Memory.MaxGuest != nil && !d.Memory.MaxGuest.IsZero() {
		problems = append(problems, s.maxGuest(domain.Child("memory", "maxGuest"), d.Memory)...)
		problems = append(problems, unlimited(domain, d, corev1.ResourceMemory, "maxGuest")...)
	}
	return problems
}

// unlimited refuses a limit of a VMI that says what the VM can get: the container's limit follows
// what the VM has.
func unlimited(domain *field.Path, d *kubevirt.DomainSpec, resource corev1.ResourceName, with string) field.ErrorList {
	if _, limited := d.Resources.Limits[resource]; !limited {
		return nil
	}
	return field.ErrorList{refused(domain.Child("resources", "limits", string(resource)),
		"with %s the limit of the VM's container follows the VM's size; remove one of them", with)}
}

func (s *Spec) maxSockets(at *field.Path, sockets uint32) field.ErrorList {
	s.CPU.MaxSockets = sockets
	switch {
	case s.CPU.Dedicated:
		return field.ErrorList{refused(at, "a VM with dedicatedCpuPlacement gets its CPUs when it starts")}
	case s.NoACPI:
		return field.ErrorList{refused(at, "requires ACPI, which features.acpi.enabled turns off")}
	case sockets < s.CPU.Sockets:
		return field.ErrorList{invalid(at, sockets, "less than sockets, %d", s.CPU.Sockets)}
	}
	// Each is at most MaxVCPUs: the product fits.
	if n := sockets * s.CPU.Cores * s.CPU.Threads; n > MaxVCPUs {
		return field.ErrorList{invalid(at, sockets, "maxSockets × cores × threads makes %d vCPUs; a VM has at most %d", n, MaxVCPUs)}
	}
	return nil
}

func (s *Spec) maxGuest(at *field.Path, m *kubevirt.Memory) field.ErrorList {
	most, err := ram(m.MaxGuest.Value())
	s.MaxMemory = most
	switch {
	case err != nil:
		return field.ErrorList{invalid(at, m.MaxGuest.String(), "%s", err)}
	case s.HugePage > 0:
		return field.ErrorList{refused(at, "a VM with hugepages gets its memory when it starts")}
	case s.NoACPI:
		return field.ErrorList{refused(at, "requires ACPI, which features.acpi.enabled turns off")}
	case most < s.Memory:
		return field.ErrorList{invalid(at, m.MaxGuest.String(), "less than the guest's memory, %s", bytesText(s.Memory))}
	}
	return nil
}

// checkMaxGuest refuses a VM whose memory is its container's limit, if that is more than the maximum.
func (s *Spec) checkMaxGuest() error {
	if s.MaxMemory == 0 || s.MaxMemory >= s.Memory {
		return nil
	}
	return fmt.Errorf("spec.domain.memory.maxGuest: %s is less than the guest's memory, %s", bytesText(s.MaxMemory), bytesText(s.Memory))
}
