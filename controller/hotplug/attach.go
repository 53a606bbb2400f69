package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// Reasons in the status of volumes and of events. All but the last two are KubeVirt's.
const (
	reasonCreated      = "SuccessfulCreate"
	reasonNotReady     = "PVCNotReady"
	reasonMounted      = "VolumeMountedToPod"
	reasonReady        = "VolumeReady"
	reasonUnMounted    = "VolumeUnMountedFromPod"
	reasonUnplugged    = "VolumeUnplugged"
	reasonFailedCreate = "FailedCreate"
	reasonFailedAttach = "FailedAttachVolume"
	reasonDetaching    = "DetachingVolume"
)

// retry is the time between two orders to a node that failed.
const retry = 5 * time.Second

// refusedRetry is the time between two tries to create an attachment pod that the API server refuses.
const refusedRetry = 15 * time.Second

// attach takes the next step for a volume that the VM should have.
func (w *work) attach(ctx context.Context, v *volume) (time.Duration, error) {
	ready := v.ready()
	held := ready || v.status.Phase == kubevirt.MemoryDumpVolumeInProgress // the node has the volume
	switch {
	case v.live == nil:
		return w.create(ctx, v, held)
	case len(v.former) > 0: // those that ended have no one else to delete them
		if err := w.deletePods(ctx, v.former); err != nil {
			return 0, err
		}
	}
	v.status.HotplugVolume.AttachPodName = v.live.Name
	container := pod.HolderOf(v.live)
	switch {
	case container == "" && (held || v.status.Phase == kubevirt.HotplugVolumeMounted): // the node may have the volume open
		return 0, w.write(ctx, v)
	case container == "":
		v.status.HotplugVolume.AttachPodUID = ""
		v.status.Phase, v.status.Reason = kubevirt.HotplugVolumeAttachedToNode, reasonCreated
		v.status.Message = fmt.Sprintf("Created hotplug attachment pod %s, for volume %s", v.live.Name, v.name)
		if why := pod.Unscheduled(v.live); why != nil {
			v.status.Phase, v.status.Reason, v.status.Message = kubevirt.VolumePending, why.Reason, clip(why.Message)
		} else if why := pod.Waiting(v.live); why != nil {
			v.status.Reason, v.status.Message = why.Reason, clip(why.Message)
		}
		return 0, w.write(ctx, v)
	}
	v.status.HotplugVolume.AttachPodUID = v.live.UID
	if ready {
		if err := moved(ctx, w.Client, w.vmi.Namespace, v); err != nil {
			return 0, err
		}
		return 0, w.write(ctx, v)
	}
	if !held && v.status.Phase != kubevirt.HotplugVolumeMounted {
		v.status.Phase, v.status.Reason = kubevirt.HotplugVolumeMounted, reasonMounted
		v.status.Message = fmt.Sprintf("Volume %s has been mounted by pod %s", v.name, v.live.Name)
		if err := w.write(ctx, v); err != nil {
			return 0, err
		}
	}
	if v.dumps() {
		return w.dump(ctx, v, container)
	}
	return w.order(ctx, v, container)
}

// moved has the status describe the PVC to which the disk of a volume was copied.
func moved(ctx context.Context, c client.Reader, namespace string, v *volume) error {
	claim, info := pod.Held(v.live).PVC, v.status.PersistentVolumeClaimInfo
	if claim == "" || info != nil && info.ClaimName == claim {
		return nil
	}
	pvc, err := find(ctx, c, namespace, claim)
	if err == nil && pvc != nil {
		v.status.PersistentVolumeClaimInfo = pod.PVCObjects{claim: pvc}.Info(claim)
	}
	return err
}

// find returns a PVC; nil if there is none.
func find(ctx context.Context, c client.Reader, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	pvc := new(corev1.PersistentVolumeClaim)
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pvc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s/%s: %w", namespace, name, err)
	}
	return pvc, nil
}

// create creates the attachment pod of a volume. The status names the pod before. Held says that
// the VM has the volume.
func (w *work) create(ctx context.Context, v *volume, held bool) (time.Duration, error) {
	pvcs, release, why, err := w.Guests.Reserve(ctx, w.vmi, v.name)
	if err != nil {
		return 0, err
	}
	if why != nil {
		if held {
			return max(why.Again, retry), nil
		}
		v.status.Phase, v.status.Reason, v.status.Message = kubevirt.VolumePending, why.Reason, why.Message
		return why.Again, w.write(ctx, v)
	}
	defer release()
	var former []types.UID
	for _, p := range v.former {
		former = append(former, p.UID)
	}
	p, err := pod.Attachment(w.vmi, w.own, v.name, pvcs, w.Holder, former...)
	if err != nil { // a retry would fail in the same way
		v.status.Phase, v.status.Reason, v.status.Message = kubevirt.VolumePending, reasonFailedCreate, err.Error()
		return 0, w.write(ctx, v)
	}
	v.status.HotplugVolume.AttachPodName = p.Name
	v.status.PersistentVolumeClaimInfo = pvcs.Info(pod.Held(p).PVC)
	refused := v.status.Reason == reasonFailedCreate // it says so until the pod is there
	if !held && !refused {
		v.status.HotplugVolume.AttachPodUID, v.status.Target = "", ""
		v.status.Phase, v.status.Reason, v.status.Message = kubevirt.VolumePending, reasonNotReady, "PVC is in phase ClaimPending"
		switch image := pod.Held(p).Image(); {
		case image != "":
			v.status.Reason, v.status.Message = reasonCreated, "Creating hotplug attachment pod "+p.Name+", with image "+image
		case bound(pvcs, p):
			v.status.Phase, v.status.Message = kubevirt.VolumeBound, "PVC is in phase Bound"
		}
	}
	if err := w.write(ctx, v); err != nil {
		return 0, err
	}
	err = w.replacePods(ctx, v.former, p) // the pod's event triggers the next step
	if !isRefused(err) {
		return 0, err
	}
	if held {
		return refusedRetry, nil
	}
	v.status.Reason, v.status.Message = reasonFailedCreate, clip(err.Error())
	return refusedRetry, w.patch(ctx, v.put)
}

// isRefused reports whether the API server refuses an object for its own reasons, such as a quota or a policy,
// whose end no event reports.
func isRefused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// replacePods deletes attachment pods, and creates the one that takes their place.
func (w *work) replacePods(ctx context.Context, former []corev1.Pod, p *corev1.Pod) error {
	if err := w.deletePods(ctx, former); err != nil {
		return err
	}
	if err := w.Client.Create(ctx, p); err != nil {
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedCreate, "Hotplug", "Error creating attachment pod: %.900s", err.Error())
		return fmt.Errorf("create attachment pod %s: %w", p.Name, err)
	}
	w.Events.Eventf(w.vmi, nil, corev1.EventTypeNormal, reasonCreated, "Hotplug", "Created attachment pod %s", p.Name)
	return nil
}

// order has the node attach what an attachment pod has mounted.
func (w *work) order(ctx context.Context, v *volume, container string) (time.Duration, error) {
	spec := pod.DiskOf(&w.vmi.Spec, v.name)
	if spec == nil { // admission refuses that
		return 0, nil
	}
	disk, err := json.Marshal(spec)
	if err != nil {
		return 0, fmt.Errorf("encode disk %s: %w", v.name, err)
	}
	attachment := order.Attachment{Disk: disk, Container: container}
	if err := w.describePVC(ctx, v, &attachment); err != nil {
		return 0, err
	}
	if of := pod.VolumeOf(&w.vmi.Spec, v.name); of != nil && of.ContainerDisk != nil {
		attachment.Path = of.ContainerDisk.Path
	}
	d, err := w.give(ctx, v, order.Attach, attachment)
	if err != nil { // the VM has the disk if an answer was lost, and the volume has another container since
		if now, e := w.give(ctx, v, order.Status, order.Name{Name: v.name}); e == nil && now.State == order.Attached {
			d, err = now, nil
		}
	}
	if err == nil && d.State != order.Attached {
		err = fmt.Errorf("%s: the disk is %s", order.Attach, d.State)
	}
	if err != nil {
		v.status.Reason, v.status.Message = reasonFailedAttach, err.Error()
		return retry, w.write(ctx, v)
	}
	v.status.Phase, v.status.Reason, v.status.Target = kubevirt.VolumeReady, reasonReady, d.Target
	v.status.Message = fmt.Sprintf("Successfully attach hotplugged volume %s to VM", v.name)
	return 0, w.write(ctx, v)
}

// describePVC adds what the node must know of the PVC: the size in bytes of the disk that it makes if the volume has none,
// and whether the storage is allocated in advance.
func (w *work) describePVC(ctx context.Context, v *volume, a *order.Attachment) error {
	claim := pod.Held(v.live).PVC
	if claim == "" {
		return nil
	}
	pvc, err := find(ctx, w.Client, w.vmi.Namespace, claim)
	if pvc == nil || err != nil {
		return err
	}
	a.Size, a.Preallocated = pod.PVCObjects{claim: pvc}.BlankSize(w.vmi, v.name), pod.Preallocated(pvc)
	return nil
}

// bound reports whether the PVC of an attachment pod is bound to a volume.
func bound(pvcs pod.PVCObjects, p *corev1.Pod) bool {
	pvc := pvcs[pod.Held(p).PVC]
	return pvc != nil && pvc.Status.Phase == corev1.ClaimBound
}
