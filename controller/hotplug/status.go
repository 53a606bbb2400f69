package hotplug

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write writes the status of a volume if it has changed, with an event about a new reason.
func (w *work) write(ctx context.Context, v *volume) error {
	at := w.at(v.name)
	before := kubevirt.VolumeStatus{}
	if at >= 0 {
		before = w.vmi.Status.VolumeStatus[at]
	}
	if equality.Semantic.DeepEqual(before, v.status) {
		return nil
	}
	if err := w.patch(ctx, v.put); err != nil {
		return err
	}
	w.announce(before, v.status)
	return nil
}

// put puts the status of a volume into that of its instance.
func (v *volume) put(s *kubevirt.VirtualMachineInstanceStatus) {
	at := slices.IndexFunc(s.VolumeStatus, func(s kubevirt.VolumeStatus) bool { return s.Name == v.name })
	if at < 0 {
		s.VolumeStatus = append(s.VolumeStatus, *v.status.DeepCopy())
	} else {
		s.VolumeStatus[at] = *v.status.DeepCopy()
	}
}

// announce sends the event of a volume whose phase or reason has changed.
func (w *work) announce(before, after kubevirt.VolumeStatus) {
	if before.Phase == after.Phase && before.Reason == after.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	switch after.Reason {
	case reasonNotReady, reasonCreated: // an event of the pod's creation follows, or preceded
		return
	case reasonMounted, reasonReady, reasonUnMounted, reasonDetaching:
	default:
		kind = corev1.EventTypeWarning
	}
	w.Events.Eventf(w.vmi, nil, kind, after.Reason, "Hotplug", "%.900s", after.Message)
}

// drop removes the status of a volume that is gone.
func (w *work) drop(ctx context.Context, v *volume) error {
	at := w.at(v.name)
	if at < 0 {
		return nil
	}
	err := w.patch(ctx, func(s *kubevirt.VirtualMachineInstanceStatus) {
		s.VolumeStatus = slices.Delete(s.VolumeStatus, at, at+1)
	})
	if err != nil {
		return err
	}
	w.Events.Eventf(w.vmi, nil, corev1.EventTypeNormal, reasonUnplugged, "Hotplug", "Volume %s has been unplugged", v.name)
	return nil
}

// patch changes the instance's status, unless another writer has changed the instance.
func (w *work) patch(ctx context.Context, change func(*kubevirt.VirtualMachineInstanceStatus)) error {
	before := w.vmi.DeepCopy()
	change(&w.vmi.Status)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Client.Status().Patch(ctx, w.vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of VMI %s/%s: %w", w.vmi.Namespace, w.vmi.Name, err))
	}
	return nil
}
