package vmi

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// DataVolumes reads CDI's objects, as [datavolume.Client] does.
type DataVolumes interface {
	Get(ctx context.Context, namespace, name string) (datavolume.State, error)
}

// pollDataVolume is the time between two looks at a DataVolume.
const pollDataVolume = 5 * time.Second

// unfilled returns why CDI has not filled a PVC of an instance's; nil if it has, or does not own the
// PVC. A volume may name a DataVolume where only a PVC of that name is: CDI may be gone.
func (c *pvcAccess) unfilled(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, use pod.PVC, pvcs pod.PVCObjects) (*trouble, error) {
	name, pvc := use.Name, pvcs[use.Name]
	switch {
	case pvc == nil && !use.DataVolume:
		return nil, nil
	case pvc != nil:
		owner := metav1.GetControllerOf(pvc)
		if owner == nil || owner.Kind != datavolume.Kind {
			return c.unfilledWithout(ctx, vmi, use, pvcs)
		}
		name = owner.Name
	}
	dv, err := c.dataVolumes.Get(ctx, vmi.Namespace, name)
	at := vmi.Namespace + "/" + name
	switch {
	case err != nil:
		return nil, err
	case dv.Unbound() && pvc != nil:
		return c.bound(ctx, vmi, at, pvcs)
	case !dv.Found && pvc != nil:
		return nil, nil // being collected: its owner is gone
	case !dv.Found:
		return &trouble{reason: ReasonDataVolumeNotFound, unschedulable: true, poll: dv.Served,
			message: fmt.Sprintf("Neither DataVolume nor PVC %s exists; the instance starts when one does.", at)}, nil
	case dv.Usable() && pvc != nil:
		return nil, c.consumers.remove(ctx, vmi, use.Name, pvcs)
	case dv.Failed() || dv.Error != "":
		return filling(dv, at), nil
	}
	return filling(dv, at), c.consumers.remove(ctx, vmi, use.Name, pvcs)
}

// filling returns that CDI has not filled a DataVolume yet, with CDI's words about why.
func filling(dv datavolume.State, at string) *trouble {
	switch {
	case dv.Failed():
		t := &trouble{reason: ReasonDataVolumeFailed, poll: true,
			message: fmt.Sprintf("DataVolume %s has failed; see its events, and create it again.", at)}
		if dv.Error != "" {
			t.message += " " + dv.Error
		}
		return t
	case dv.Error != "":
		return &trouble{reason: ReasonDataVolumeFailed, poll: true,
			message: fmt.Sprintf("CDI cannot fill DataVolume %s, and tries again: %s", at, dv.Error)}
	case dv.Words != "" && dv.Phase == "":
		return &trouble{reason: ReasonDataVolumeNotReady, poll: true,
			message: fmt.Sprintf("CDI has not begun to fill DataVolume %s: %s", at, dv.Words)}
	}
	t := &trouble{reason: ReasonDataVolumeNotReady, poll: true,
		message: fmt.Sprintf("DataVolume %s is in phase %s, progress %s.", at, orUnknown(dv.Phase), orUnknown(dv.Progress))}
	if dv.Words != "" {
		t.message += " " + dv.Words
	}
	return t
}

// beingFilled returns the DataVolume that CDI fills while the pod of an instance waits, since Kubernetes binds its PVC
// only then; nil if there is none. A PVC that a node fills, in a cluster without CDI, is in unwritten.
func (c *pvcAccess) beingFilled(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (cdi *trouble, unwritten string, err error) {
	starting := pod.AtStart(vmi)
	pvcs, err := c.pvcObjects(ctx, starting)
	if err != nil {
		return nil, "", err
	}
	for _, use := range pod.PVCs(&starting.Spec) {
		pvc := pvcs[use.Name]
		if pvc == nil {
			continue
		}
		if image := pod.Unfilled(pvc); image != "" && use.DataVolume && unwritten == "" {
			unwritten = fmt.Sprintf("The node is about to write image %s to PVC %s/%s.", image, vmi.Namespace, use.Name)
		}
		owner := metav1.GetControllerOf(pvc)
		if pvc.Status.Phase == corev1.ClaimBound || owner == nil || owner.Kind != datavolume.Kind {
			continue
		}
		dv, err := c.dataVolumes.Get(ctx, vmi.Namespace, owner.Name)
		if err != nil {
			return nil, "", err
		}
		if dv.Found && !dv.Filled() {
			return filling(dv, vmi.Namespace+"/"+owner.Name), "", nil
		}
	}
	return nil, unwritten, nil
}

// unfilledWithout returns why a PVC without a DataVolume, which its annotations ask CDI to fill, has not its content yet.
func (c *pvcAccess) unfilledWithout(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, use pod.PVC, pvcs pod.PVCObjects,
) (*trouble, error) {
	pvc := pvcs[use.Name]
	if !pod.FillsByCDI(pvc) {
		return nil, nil
	}
	if dv, err := c.dataVolumes.Get(ctx, vmi.Namespace, pvc.Name); err != nil || !dv.Served {
		return nil, err // without CDI, nothing fills it
	}
	why := ""
	if late, err := c.consumers.late(ctx, pvc); err != nil {
		return nil, err
	} else if !late {
		if err := c.consumers.remove(ctx, vmi, use.Name, pvcs); err != nil {
			return nil, err
		}
	} else if why, err = c.consumers.ensure(ctx, vmi, pvcs); err != nil {
		return nil, err
	}
	return &trouble{reason: ReasonPVCNotFilled, poll: true, message: fmt.Sprintf(
		"PVC %s/%s has annotations by which CDI fills it, and is not filled yet; the instance starts when it is.%s", vmi.Namespace, pvc.Name, why)}, nil
}

// dataVolumesReady returns whether the DataVolumes are filled that an instance names; nil if it names none, or waits for
// something else.
func dataVolumesReady(vmi *kubevirt.VirtualMachineInstance, v view) *cond {
	if !slices.ContainsFunc(vmi.Spec.Volumes, func(v kubevirt.Volume) bool { return v.DataVolume != nil }) {
		return nil
	}
	c := cond{Type: kubevirt.VirtualMachineInstanceDataVolumesReady}
	reasons := []string{ReasonDataVolumeFailed, ReasonDataVolumeNotFound, ReasonDataVolumeNotReady}
	plugged := slices.IndexFunc(vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool {
		return s.HotplugVolume != nil && slices.Contains(reasons, s.Reason)
	})
	switch {
	case v.pod != nil && plugged >= 0:
		c.Status, c.Reason = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonNotAllDVsReady
		c.Message = vmi.Status.VolumeStatus[plugged].Message
	case v.ended():
		return nil // they are as they were
	case v.unfilled != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonNotAllDVsReady, v.unfilled.message
	case v.unwritten != "":
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonNotAllDVsReady, v.unwritten
		if t := v.find(); t != nil {
			c.Message = t.message
		}
	case v.pod != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, kubevirt.VirtualMachineInstanceReasonAllDVsReady, "All DataVolumes are filled."
	case v.trouble != nil && slices.Contains(reasons, v.trouble.reason):
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonNotAllDVsReady, v.trouble.message
	default:
		return nil
	}
	return &c
}

// bound has Kubernetes bind the PVCs of an instance, one of which CDI fills then, and returns the trouble until it has.
func (c *pvcAccess) bound(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, dataVolume string, pvcs pod.PVCObjects) (*trouble, error) {
	why, err := c.consumers.ensure(ctx, vmi, pvcs)
	if err != nil {
		return nil, err
	}
	return &trouble{
		reason: ReasonDataVolumeNotReady, poll: true,
		message: fmt.Sprintf("DataVolume %s is in phase WaitForFirstConsumer: its PVC is not bound to a volume.%s", dataVolume, why),
	}, nil
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

// markFilled records on the PVCs of a running instance that they are copies of their
// images now.
func (c *pvcAccess) markFilled(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) error {
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := pvcs[use.Name]
		if pvc == nil || !pod.Unmarked(vmi, use, pvc) {
			continue
		}
		before := pvc.DeepCopy()
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, pod.AnnotationFilled, "true")
		if err := c.client.Patch(ctx, pvc, client.MergeFrom(before)); err != nil {
			return ignoreGone(fmt.Errorf("mark PVC %s/%s as filled: %w", pvc.Namespace, pvc.Name, err))
		}
	}
	return nil
}
