package snapshot

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// usage returns what the guests of sources use.
type usage struct{ revisions client.Reader }

// of returns the source as it is restored: a VM that does not run as it is, and one that runs as it was started, with the
// volumes that its guest has now. The template may name others since, which the guest gets at its next start.
func (u usage) of(ctx context.Context, w *work) (*kubevirt.VirtualMachine, error) {
	if w.vmi == nil {
		return w.vm, nil
	}
	now := w.vm.DeepCopy()
	started := now.Spec.DeepCopy()
	if name := w.vmi.Status.VirtualMachineRevisionName; name != "" {
		revision := new(appsv1.ControllerRevision)
		key := client.ObjectKey{Namespace: w.vm.Namespace, Name: name}
		if err := u.revisions.Get(ctx, key, revision); err != nil {
			return nil, fmt.Errorf("read ControllerRevision %s: %w", key, err)
		}
		var data struct{ Spec kubevirt.VirtualMachineSpec }
		if err := decode.JSON(revision.Data.Raw, &data); err != nil {
			return nil, fmt.Errorf("ControllerRevision %s is of no VM: %w", key, err)
		}
		if data.Spec.Template == nil {
			return nil, fmt.Errorf("ControllerRevision %s is of no VM", key)
		}
		started = &data.Spec
	}
	made := now.DeepCopy()
	made.Spec = *started
	useVolumes(made, &now.Spec, &w.vmi.Spec)
	return made, nil
}

// useVolumes gives a VM, which has the spec of its start, the volumes and disks of its instance that are its own: that it
// started with, or has got by the template since. Users give an instance others for a while.
func useVolumes(made *kubevirt.VirtualMachine, now *kubevirt.VirtualMachineSpec, vmi *kubevirt.VirtualMachineInstanceSpec) {
	then, current := made.Spec.Template.Spec.DeepCopy(), &now.Template.Spec
	var volumes []kubevirt.Volume
	for _, own := range slices.Concat(then.Volumes, current.Volumes) {
		has := pod.VolumeOf(vmi, own.Name)
		if has == nil || slices.ContainsFunc(volumes, func(v kubevirt.Volume) bool { return v.Name == own.Name }) {
			continue
		}
		volumes = append(volumes, sameDisk(own, pod.VolumeOf(current, own.Name), has))
	}
	isVolume := func(all []kubevirt.Volume, name string) bool {
		return slices.ContainsFunc(all, func(v kubevirt.Volume) bool { return v.Name == name })
	}
	var disks []kubevirt.Disk
	for _, d := range slices.Concat(then.Domain.Devices.Disks, current.Domain.Devices.Disks, vmi.Domain.Devices.Disks) {
		known := slices.ContainsFunc(disks, func(other kubevirt.Disk) bool { return other.Name == d.Name })
		empty := !isVolume(then.Volumes, d.Name) && pod.DiskOf(then, d.Name) != nil // a drive without a medium
		if !known && (isVolume(volumes, d.Name) || empty) {
			disks = append(disks, d)
		}
	}
	s := &made.Spec.Template.Spec
	s.Volumes, s.Domain.Devices.Disks = volumes, disks
	made.Spec.DataVolumeTemplates = usedTemplates(slices.Concat(now.DataVolumeTemplates, made.Spec.DataVolumeTemplates), current.Volumes, volumes)
}

// sameDisk returns a volume with the PVC that the instance has: in the words of the template of the start, of that of now, or
// of the instance, in this order.
func sameDisk(own kubevirt.Volume, now, has *kubevirt.Volume) kubevirt.Volume {
	claim := pod.ClaimOf(has)
	switch {
	case claim == "" || pod.ClaimOf(&own) == claim:
		return own
	case now != nil && pod.ClaimOf(now) == claim:
		return *now
	}
	return *has
}

// usedTemplates returns the templates of DataVolumes that volumes name, and those that no volume of now names.
func usedTemplates(all []kubevirt.DataVolumeTemplateSpec, now, used []kubevirt.Volume) []kubevirt.DataVolumeTemplateSpec {
	names := func(volumes []kubevirt.Volume, template string) bool {
		return slices.ContainsFunc(volumes, func(v kubevirt.Volume) bool { return pod.ClaimOf(&v) == template })
	}
	var kept []kubevirt.DataVolumeTemplateSpec
	for _, t := range all {
		known := slices.ContainsFunc(kept, func(k kubevirt.DataVolumeTemplateSpec) bool { return k.Name == t.Name })
		if !known && (names(used, t.Name) || !names(now, t.Name)) {
			kept = append(kept, t)
		}
	}
	return kept
}
