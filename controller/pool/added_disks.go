package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// AnnotationAddedDisk is of a PVC that a user or a restore gave to a VM of a pool, and that is no DataVolume of a template: the
// pool has removed the VM, and its next VM of that number gets the disk. The value is an [addedDisk] as JSON.
const AnnotationAddedDisk = "vm.nodevirt.io/added-disk"

// addedDisk is how a VM had such a PVC. Its volume is made again of the PVC's name alone: who may annotate a PVC may not
// give a VM other volumes.
type addedDisk struct {
	Pool         string         `json:"pool"`
	Hotpluggable bool           `json:"hotpluggable,omitempty"`
	Disk         *kubevirt.Disk `json:"disk,omitempty"`
}

// addedTo returns how a VM has a PVC that is its own and not made by a template; "" for another. Made is the spec that the
// pool's revision makes of the VM.
func addedTo(pool *vmPool, vm *kubevirt.VirtualMachine, made *kubevirt.VirtualMachineSpec, claim string) (string, error) {
	volume := volumeOf(vm, claim)
	if volume == "" || templateOf(&vm.Spec, claim) >= 0 || madeClaim(made, volume) == claim {
		return "", nil
	}
	s := &vm.Spec.Template.Spec
	own := addedDisk{Pool: pool.Name, Hotpluggable: pod.Hotpluggable(pod.VolumeOf(s, volume)), Disk: pod.DiskOf(s, volume)}
	text, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("encode disk %s of VM %s: %w", volume, vm.Name, err)
	}
	return string(text), nil
}

// giveBack gives a new VM of a pool a PVC that its predecessor had as its own disk, unless something else uses it meanwhile.
func (d *disks) giveBack(
	ctx context.Context, pool *vmPool, vm *kubevirt.VirtualMachine, pvc *corev1.PersistentVolumeClaim, volume string,
) error {
	var own addedDisk
	if err := decode.JSON([]byte(pvc.Annotations[AnnotationAddedDisk]), &own); err != nil || own.Pool != pool.Name {
		return nil //nolint:nilerr // what this pool has not written is not read
	}
	if user, err := diskguard.OtherUser(ctx, d.live, pvc, diskguard.Owner{Name: vm.Name, UID: vm.UID}); err != nil || user != "" {
		return err
	}
	s := &vm.Spec.Template.Spec
	source := kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc.Name},
		Hotpluggable:                      own.Hotpluggable,
	}}
	if have := pod.VolumeOf(s, volume); have != nil {
		replaced := pod.ClaimOf(have)
		if replaced == "" {
			return nil // the template's volume is of another kind
		}
		have.VolumeSource = source
		dropTemplate(&vm.Spec, replaced)
		return nil
	}
	s.Volumes = append(s.Volumes, kubevirt.Volume{Name: volume, VolumeSource: source})
	if own.Disk != nil && pod.DiskOf(s, volume) == nil {
		own.Disk.Name = volume
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, *own.Disk)
	}
	return nil
}

// claimsOf returns the names of a VM's PVCs, of its templates and its volumes, without repetition.
func claimsOf(vm *kubevirt.VirtualMachine) []string {
	var all []string
	for i := range vm.Spec.DataVolumeTemplates {
		all = append(all, vm.Spec.DataVolumeTemplates[i].Name)
	}
	if vm.Spec.Template == nil {
		return all
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		claim := pod.ClaimOf(&vm.Spec.Template.Spec.Volumes[i])
		if claim != "" && !slices.Contains(all, claim) {
			all = append(all, claim)
		}
	}
	return all
}
