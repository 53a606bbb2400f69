package instancetype

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype/v1beta1"

	"github.com/nodevirt/nodevirt/controller/manifest"
)

// Types are the instance type and the preference of a VirtualMachine; nil for none.
type Types struct {
	Instancetype *api.VirtualMachineInstancetypeSpec
	Preference   *api.VirtualMachinePreferenceSpec
}

// Apply writes what the types say into a template: of an instance type all, of a
// preference what the template leaves open. It returns what contradicts them, and
// then the template is not to be used; at is its path.
func (t Types) Apply(at *field.Path, template *kubevirt.VirtualMachineInstanceTemplateSpec) field.ErrorList {
	if t.Instancetype == nil && t.Preference == nil {
		return nil
	}
	problems := t.check(at, &template.Spec)
	if t.Instancetype != nil {
		problems = append(problems, conflicts(at, template, t.Instancetype)...)
	}
	if len(problems) > 0 {
		return problems
	}
	annotations := map[string]string{}
	if p := t.Preference; p != nil {
		maps.Copy(annotations, p.Annotations)
	}
	maps.Copy(annotations, template.ObjectMeta.Annotations)
	if i := t.Instancetype; i != nil {
		maps.Copy(annotations, i.Annotations)
		t.setSize(&template.Spec)
	}
	if len(annotations) > 0 {
		template.ObjectMeta.Annotations = annotations
	}
	if t.Preference != nil {
		prefer(t.Preference, &template.Spec)
	}
	return nil
}

// conflicts are what a template says that its instance type says as well.
func conflicts(
	at *field.Path, template *kubevirt.VirtualMachineInstanceTemplateSpec, of *api.VirtualMachineInstancetypeSpec,
) field.ErrorList {
	spec, vmi := at.Child("spec"), &template.Spec
	problems := manifest.SizeConflicts(spec, vmi)
	conflict := func(is bool, path *field.Path) {
		if is {
			problems = append(problems, manifest.ConflictWithType(path))
		}
	}
	conflict(vmi.Domain.CPU != nil && vmi.Domain.CPU.Model != "" && of.CPU.Model != nil, spec.Child("domain", "cpu", "model"))
	if cpu, typed := vmi.Domain.CPU, of.CPU; cpu != nil {
		at := spec.Child("domain", "cpu")
		conflict(cpu.DedicatedCPUPlacement && typed.DedicatedCPUPlacement != nil, at.Child("dedicatedCpuPlacement"))
		conflict(cpu.IsolateEmulatorThread && typed.IsolateEmulatorThread != nil, at.Child("isolateEmulatorThread"))
		conflict(cpu.MaxSockets > 0 && typed.MaxSockets != nil, at.Child("maxSockets"))
		conflict(cpu.NUMA != nil && typed.NUMA != nil, at.Child("numa"))
		conflict(cpu.Realtime != nil && typed.Realtime != nil, at.Child("realtime"))
	}
	devices := &vmi.Domain.Devices
	conflict(len(devices.GPUs) > 0 && len(of.GPUs) > 0, spec.Child("domain", "devices", "gpus"))
	conflict(len(devices.HostDevices) > 0 && len(of.HostDevices) > 0, spec.Child("domain", "devices", "hostDevices"))
	conflict(vmi.Domain.IOThreadsPolicy != nil && of.IOThreadsPolicy != nil, spec.Child("domain", "ioThreadsPolicy"))
	conflict(vmi.NodeSelector != nil && of.NodeSelector != nil, spec.Child("nodeSelector"))
	conflict(vmi.SchedulerName != "" && of.SchedulerName != "", spec.Child("schedulerName"))
	for _, key := range slices.Sorted(maps.Keys(of.Annotations)) {
		have, ok := template.ObjectMeta.Annotations[key]
		conflict(ok && have != of.Annotations[key], at.Child("metadata", "annotations").Key(key))
	}
	return problems
}

// setSize writes what an instance type says.
func (t Types) setSize(vmi *kubevirt.VirtualMachineInstanceSpec) {
	of := t.Instancetype
	if vmi.Domain.CPU == nil {
		vmi.Domain.CPU = new(kubevirt.CPU)
	}
	cpu := vmi.Domain.CPU
	cpu.Sockets, cpu.Cores, cpu.Threads = t.topology()
	if of.CPU.MaxSockets != nil {
		cpu.MaxSockets = *of.CPU.MaxSockets
	}
	if of.CPU.Model != nil {
		cpu.Model = *of.CPU.Model
	}
	t.setPlacement(cpu)
	setNil(&vmi.Domain.IOThreadsPolicy, of.IOThreadsPolicy)
	devices, typed := &vmi.Domain.Devices, of.DeepCopy()
	devices.GPUs = append(devices.GPUs, typed.GPUs...)
	devices.HostDevices = append(devices.HostDevices, typed.HostDevices...)
	guest := of.Memory.Guest.DeepCopy()
	if !guest.IsZero() {
		vmi.Domain.Memory = &kubevirt.Memory{Guest: &guest, Hugepages: typed.Memory.Hugepages, MaxGuest: typed.Memory.MaxGuest}
	}
	if percent := int64(of.Memory.OvercommitPercent); percent > 0 {
		if vmi.Domain.Resources.Requests == nil {
			vmi.Domain.Resources.Requests = corev1.ResourceList{}
		}
		vmi.Domain.Resources.Requests[corev1.ResourceMemory] =
			*resource.NewQuantity(overcommitted(guest.Value(), percent), guest.Format)
	}
	if of.NodeSelector != nil {
		vmi.NodeSelector = maps.Clone(of.NodeSelector)
	}
	if of.SchedulerName != "" {
		vmi.SchedulerName = of.SchedulerName
	}
}

// setPlacement writes where the vCPUs are.
func (t Types) setPlacement(cpu *kubevirt.CPU) {
	of := t.Instancetype.CPU
	is := func(flag *bool) bool { return flag != nil && *flag }
	cpu.DedicatedCPUPlacement = cpu.DedicatedCPUPlacement || is(of.DedicatedCPUPlacement)
	cpu.IsolateEmulatorThread = cpu.IsolateEmulatorThread || is(of.IsolateEmulatorThread)
	if of.NUMA != nil {
		cpu.NUMA = of.NUMA.DeepCopy()
	}
	setNil(&cpu.Realtime, of.Realtime)
}

// overcommitted is the part of a guest's memory that its pod requests. It is computed as KubeVirt does it, down to
// the rounding, so that the same manifest requests the same.
func overcommitted(guest, percent int64) int64 {
	return int64(float32(guest) * (1 - float32(percent)/100))
}
