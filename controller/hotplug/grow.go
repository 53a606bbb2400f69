package hotplug

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// reasonFailedGrow is the reason of the event of a disk that a node could not grow.
const reasonFailedGrow = "FailedExpandVolume"

// grow has the node grow the disks whose PVCs have been expanded, and returns when to look
// again. The instance's status has the capacity that a disk has been grown to.
func (w *work) grow(ctx context.Context) (time.Duration, error) {
	var names []string
	for _, s := range w.vmi.Status.VolumeStatus {
		if s.Target != "" && (s.HotplugVolume == nil || s.Phase == kubevirt.VolumeReady) {
			names = append(names, s.Name)
		}
	}
	return each(names, func(name string) (time.Duration, error) { return w.growOne(ctx, name) })
}

// growOne has the node grow a disk, if its PVC has been expanded.
func (w *work) growOne(ctx context.Context, name string) (time.Duration, error) {
	v := &volume{name: name, status: *w.vmi.Status.VolumeStatus[w.at(name)].DeepCopy()}
	to, err := w.expanded(ctx, v.status.PersistentVolumeClaimInfo)
	if err != nil || to == nil {
		return 0, err
	}
	size := to[corev1.ResourceStorage]
	if _, err := w.give(ctx, v, order.Grow, order.Growth{Name: name, Size: size.Value()}); err != nil {
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedGrow, "Hotplug", "Volume %s: %.900s", name, err.Error())
		return retry, nil
	}
	v.status.PersistentVolumeClaimInfo.Capacity = to
	return 0, w.write(ctx, v)
}

// expanded returns the capacity of a PVC that is larger than the one which its disk has been
// grown to; nil for another one.
func (w *work) expanded(ctx context.Context, info *kubevirt.PersistentVolumeClaimInfo) (corev1.ResourceList, error) {
	if info == nil {
		return nil, nil
	}
	was, has := info.Capacity[corev1.ResourceStorage]
	if !has {
		return nil, nil
	}
	pvc, err := find(ctx, w.Client, w.vmi.Namespace, info.ClaimName)
	if pvc == nil || err != nil {
		return nil, err
	}
	if now := pvc.Status.Capacity[corev1.ResourceStorage]; now.Cmp(was) <= 0 {
		return nil, nil
	}
	return pvc.Status.Capacity, nil
}
