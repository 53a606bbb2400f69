package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// reasonHotplug is KubeVirt's reason for volumes that the running instance cannot get.
const reasonHotplug = "HotPlugVolumeError"

// hotplugError says that the instance of a VirtualMachine does not take its volumes.
type hotplugError struct{ error }

func (e hotplugError) Unwrap() error { return e.error }

// plug gives the running instance the hot-plugged volumes of the template, and takes away
// those that the template had. It leaves alone what users have added to the instance, and the volumes whose move is
// refused: these keep their PVCs, while others come and go, as the move may wait for one to go.
func (r *Reconciler) plug(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, refused []migratedVolume,
) error {
	if vmi == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running || vm.Spec.Template == nil {
		return nil
	}
	template := beforeMoves(vm.Spec.Template.Spec, vmi, refused)
	if len(pod.Given(vmi)) == 0 && len(wanted(&template, vmi)) == 0 {
		return nil
	}
	next := plugged(&template, vmi)
	if equality.Semantic.DeepEqual(next, vmi) {
		return nil
	}
	patch := client.MergeFromWithOptions(vmi.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.client.Patch(ctx, next, patch)); err != nil {
		return hotplugError{fmt.Errorf("change the volumes of VMI %s: %w", vmi.Name, err)}
	}
	*vmi = *next
	return nil
}

// wanted returns the volumes of a template that the VM of an instance gets while it runs.
func wanted(template *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) []string {
	return slices.Concat(pod.Hotplugged(template), pod.Images(template, vmi), pod.Media(template, vmi))
}

// plugged returns an instance with the hot-plugged volumes of a template. A volume that
// changes, or that the VM still loses, follows when it is gone.
func plugged(template *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	next := vmi.DeepCopy()
	given, wanted := pod.Given(vmi), wanted(template, vmi)
	for _, name := range given {
		same := slices.Contains(wanted, name) && sameVolume(template, &next.Spec, name)
		if !same && !pod.StartedWith(vmi, name) {
			pod.Remove(&next.Spec, name)
		}
	}
	var now []string
	for _, name := range wanted {
		switch {
		case pod.VolumeOf(&next.Spec, name) != nil:
			if slices.Contains(given, name) || sameVolume(template, &next.Spec, name) {
				now = append(now, name)
			}
		case hasStatus(vmi, name):
		case pod.IsDrive(template, name) && !pod.IsDrive(&next.Spec, name): // the VM gets the drive at its next start
		default:
			next.Spec.Volumes = append(next.Spec.Volumes, *pod.VolumeOf(template, name).DeepCopy())
			if !pod.IsDrive(template, name) {
				next.Spec.Domain.Devices.Disks = append(next.Spec.Domain.Devices.Disks, *pod.DiskOf(template, name).DeepCopy())
			}
			now = append(now, name)
		}
	}
	if !slices.Equal(now, given) {
		setHotplugged(&next.ObjectMeta, now)
	}
	return next
}

// setHotplugged records the hot-plugged volumes that an instance has by the template.
func setHotplugged(meta *metav1.ObjectMeta, names []string) {
	if len(names) == 0 {
		delete(meta.Annotations, pod.AnnotationHotplugged)
		return
	}
	metav1.SetMetaDataAnnotation(meta, pod.AnnotationHotplugged, strings.Join(names, ","))
}

// sameVolume reports whether two specs have the same volume of a name.
func sameVolume(a, b *kubevirt.VirtualMachineInstanceSpec, name string) bool {
	return equality.Semantic.DeepEqual(pod.VolumeOf(a, name), pod.VolumeOf(b, name))
}

func hasStatus(vmi *kubevirt.VirtualMachineInstance, volume string) bool {
	return slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool { return s.Name == volume })
}
