package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// ReasonPreviousRunning is the reason of an instance that waits for the end of an earlier one of its name.
const ReasonPreviousRunning = "PreviousInstanceRunning"

// Reasons why an instance waits for its PVCs.
const (
	// These are KubeVirt's.
	ReasonPVCNotFound      = "FailedPvcNotFound"
	ReasonDataVolumeFailed = "FailedDataVolumeImport"

	ReasonPVCDeleted         = "PVCDeleted"
	ReasonPVCInUse           = "PVCInUse"
	ReasonPVCNotFilled       = "PVCNotFilled"
	ReasonDataVolumeNotFound = "FailedDataVolumeNotFound"
	ReasonDataVolumeNotReady = "DataVolumeNotReady"
)

// pvcAccess reads the PVCs of instances: whether they are filled, and who uses them.
type pvcAccess struct {
	client      client.Client
	dataVolumes DataVolumes
	views       viewer
	consumers   binder
}

// pvcObjects returns the PVCs of an instance that exist.
func (c *pvcAccess) pvcObjects(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.PVCObjects, error) {
	all := pod.PVCObjects{}
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := new(corev1.PersistentVolumeClaim)
		switch err := c.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: use.Name}, pvc); {
		case err == nil:
			all[use.Name] = pvc
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read PVC %s/%s: %w", vmi.Namespace, use.Name, err)
		}
	}
	return all, nil
}

// unusable returns why an instance can't use its PVCs yet; nil if it can. A PVC that
// is not bound is no reason: some are bound to a volume only when a pod uses them.
func (c *pvcAccess) unusable(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects,
) (*trouble, error) {
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := pvcs[use.Name]
		if t, err := c.unfilled(ctx, vmi, use, pvcs); err != nil || t != nil {
			return t, err
		}
		switch {
		case pvc == nil:
			return &trouble{reason: ReasonPVCNotFound, unschedulable: true,
				message: fmt.Sprintf("PVC %s/%s does not exist; the instance starts when it does.", vmi.Namespace, use.Name)}, nil
		case pvc.DeletionTimestamp != nil:
			return &trouble{reason: ReasonPVCDeleted, unschedulable: true,
				message: fmt.Sprintf("PVC %s/%s is being deleted; create it again.", vmi.Namespace, use.Name)}, nil
		}
		if image := pod.Unfilled(pvc); image != "" && !use.Fills() {
			return &trouble{reason: ReasonPVCNotFilled, unschedulable: true,
				message: fmt.Sprintf("PVC %s/%s is not a copy of image %s yet, and this instance can't make it one; "+
					"start one that writes the PVC as a disk first, or remove the PVC's annotation %s.",
					vmi.Namespace, use.Name, image, pod.AnnotationOrigin)}, nil
		}
		if t, err := c.inUse(ctx, vmi, use, pvc); err != nil || t != nil {
			return t, err
		}
	}
	return nil, nil
}

// inUse returns that another instance uses a PVC and excludes this instance from it; nil
// if none does. Instances share a PVC if its access mode allows it, or if none of them
// writes it. ReadWriteOnce does not ensure that: it is about nodes.
func (c *pvcAccess) inUse(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, use pod.PVC, pvc *corev1.PersistentVolumeClaim,
) (*trouble, error) {
	if slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) {
		return nil, nil
	}
	var pods corev1.PodList
	// The cache has the pods that this process has created: the read waits for them.
	err := c.client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{index.PVC: use.Name})
	if err != nil {
		return nil, fmt.Errorf("list pods with PVC %s/%s: %w", vmi.Namespace, use.Name, err)
	}
	used := func(instance, by string) *trouble {
		return &trouble{reason: ReasonPVCInUse,
			message: fmt.Sprintf("PVC %s/%s is in use by instance %s (pod %s); stop that one, or use a PVC with access mode ReadWriteMany.",
				vmi.Namespace, use.Name, instance, by)}
	}
	user, err := c.holder(ctx, vmi, pods.Items, func(p *corev1.Pod) (bool, error) {
		if use.Shareable && !use.ReadOnly { // by VMs on one node
			return c.shares(ctx, p, use.Name)
		}
		return use.ReadOnly && readsOnly(p, use.Name), nil
	})
	if err != nil {
		return nil, err
	}
	if user != nil {
		from, _ := originOf(user)
		return used(from.name, user.Name), nil
	}
	instance, attachment, err := c.hotplugUser(ctx, vmi, use, pods.Items)
	if err != nil || attachment == "" {
		return nil, err
	}
	t := used(instance, attachment)
	t.poll = true // not each end of that is an event of a pod
	return t, nil
}

// holder returns the first of some pods that is another instance's, has not ended and does not share its storage with
// this instance; nil if there is none.
func (c *pvcAccess) holder(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pods []corev1.Pod, shares func(*corev1.Pod) (bool, error),
) (*corev1.Pod, error) {
	for i := range pods {
		p := &pods[i]
		from, ours := originOf(p)
		if !ours || from.uid == vmi.UID {
			continue
		}
		if is, err := shares(p); err != nil || is {
			if err != nil {
				return nil, err
			}
			continue
		}
		v, err := c.views.look(ctx, p)
		if err != nil {
			return nil, err
		}
		if !v.ended() {
			return p, nil
		}
	}
	return nil, nil
}

// pvcKeys identifies the PVCs of an instance in its cluster.
func pvcKeys(vmi *kubevirt.VirtualMachineInstance) []string {
	var keys []string
	for _, use := range pod.PVCs(&vmi.Spec) {
		keys = append(keys, vmi.Namespace+"/"+use.Name)
	}
	return keys
}

// pvcsOf returns the names of a pod's PVCs.
func pvcsOf(p *corev1.Pod) []string {
	var names []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// shares reports whether the instance of a pod shares a PVC.
func (c *pvcAccess) shares(ctx context.Context, p *corev1.Pod, name string) (bool, error) {
	from, _ := originOf(p)
	other := new(kubevirt.VirtualMachineInstance)
	err := c.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: from.name}, other)
	if err != nil || other.UID != from.uid {
		return false, client.IgnoreNotFound(err)
	}
	return slices.ContainsFunc(pod.PVCs(&other.Spec), func(use pod.PVC) bool { return use.Name == name && use.Shareable }), nil
}

// readsOnly reports whether a pod can't write a PVC.
func readsOnly(p *corev1.Pod, name string) bool {
	return !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		c := v.PersistentVolumeClaim
		return c != nil && c.ClaimName == name && !c.ReadOnly
	})
}
