package vmi

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// withoutPlugged returns the former and the new spec of an instance whose VM runs without
// the volumes that the VM may get and lose, and what is wrong with the changes of those.
func withoutPlugged(r *admission.Review) (old, now any, problems field.ErrorList) {
	old, now = r.Old["spec"], r.Object["spec"]
	var before, after kubevirt.VirtualMachineInstance
	if fields.Decode(map[string]any{"metadata": r.Old["metadata"], "spec": old, "status": r.Old["status"]}, &before) != nil ||
		fields.Decode(map[string]any{"metadata": r.Object["metadata"], "spec": now}, &after) != nil || before.Status.Phase != kubevirt.Running {
		return old, now, nil
	}
	after.Status = before.Status
	had, has := plugs(&before), plugs(&after)
	problems = checkPlugs(&before.Spec, &after.Spec, had, has)
	pod.Remove(&before.Spec, had...)
	pod.Remove(&after.Spec, has...)
	if !equality.Semantic.DeepEqual(before.Spec.Volumes, after.Spec.Volumes) ||
		!equality.Semantic.DeepEqual(before.Spec.Domain.Devices.Disks, after.Spec.Domain.Devices.Disks) {
		return old, now, nil
	}
	return withoutVolumes(old), withoutVolumes(now), problems
}

// plugs returns the volumes of an instance that its VM may get while it runs, and has not started
// with: the instance's status has the others.
func plugs(vmi *kubevirt.VirtualMachineInstance) []string {
	var names []string
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if pod.Hotpluggable(v) && !pod.StartedWith(vmi, v.Name) || pod.GivenImage(vmi, v) {
			names = append(names, v.Name)
		}
	}
	return names
}

// checkPlugs returns what is wrong with the volumes that a VM gets, as KubeVirt words it.
func checkPlugs(before, after *kubevirt.VirtualMachineInstanceSpec, had, has []string) field.ErrorList {
	var problems field.ErrorList
	volumes, disks := field.NewPath("spec", "volumes"), field.NewPath("spec", "domain", "devices", "disks")
	for _, name := range has {
		d := pod.DiskOf(after, name)
		switch {
		case pod.VolumeOf(after, name).MemoryDump != nil:
			if slices.Contains(had, name) && !equality.Semantic.DeepEqual(pod.VolumeOf(before, name), pod.VolumeOf(after, name)) {
				problems = append(problems, field.Forbidden(volumes, fmt.Sprintf("hotplug volume %s, changed", name)))
			}
		case d == nil:
			problems = append(problems, field.Required(disks, fmt.Sprintf("disk %s does not exist", name)))
		case slices.Contains(had, name):
			if !equality.Semantic.DeepEqual(pod.VolumeOf(before, name), pod.VolumeOf(after, name)) {
				problems = append(problems, field.Forbidden(volumes, fmt.Sprintf("hotplug volume %s, changed", name)))
			}
			if !equality.Semantic.DeepEqual(pod.DiskOf(before, name), d) {
				problems = append(problems, field.Forbidden(disks, fmt.Sprintf("hotplug disk %s, changed", name)))
			}
		case pod.VolumeOf(after, name).ContainerDisk != nil && !pod.OnlyRead(d):
			problems = append(problems, field.Forbidden(disks, fmt.Sprintf("hotplug disk %s, a running VM can only read a containerDisk: set readonly", name)))
		case before.Domain.Devices.DisableHotplug:
			problems = append(problems, field.Forbidden(volumes, fmt.Sprintf("volume %s: the instance has disableHotplug", name)))
		case d.CDRom != nil: // its drive is compared with all else that the VM started with
		default:
			if err := pod.CheckHotplug(d); err != nil {
				problems = append(problems, field.Forbidden(disks, fmt.Sprintf("Hotplug configuration for disk [%s] %s.", name, err)))
			}
		}
	}
	return problems
}

// withoutVolumes returns a spec without volumes and disks. It leaves the spec as it is.
func withoutVolumes(spec any) any {
	return trimmed(trimmed(spec, "volumes"), "domain", "devices", "disks")
}

// trimmed returns a decoded value without what a path leads to.
func trimmed(value any, first string, rest ...string) any {
	from, is := value.(map[string]any)
	if !is {
		return value
	}
	to := make(map[string]any, len(from))
	for key, child := range from {
		switch {
		case key != first:
			to[key] = child
		case len(rest) > 0:
			to[key] = trimmed(child, rest[0], rest[1:]...)
		}
	}
	return to
}
