package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// Guests reserves what running VMs get, for package hotplug.
type Guests struct {
	client client.Client
	turns  *turns
	views  viewer
	pvcs   finder
	disks  diskFinder
}

// Guest returns an instance's VM.
func (g *Guests) Guest(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (hotplug.Guest, error) {
	own, err := ownPod(ctx, g.client, vmi)
	if err != nil || own == nil {
		return hotplug.Guest{}, err
	}
	v, err := g.views.look(ctx, own)
	if err != nil {
		return hotplug.Guest{}, err
	}
	running := v.running() && vmi.Status.Phase == kubevirt.Running && vmi.DeletionTimestamp == nil && !Migrating(vmi)
	return hotplug.Guest{Pod: own, Running: running && !v.ended(), Ended: v.ended()}, nil
}

// Reserve starts a turn with the PVC of a volume that an instance's VM gets while it runs.
func (g *Guests) Reserve(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, volume string,
) (pvcs pod.PVCObjects, release func(), why *hotplug.Refusal, err error) {
	one := pod.Only(vmi, volume)
	end := g.turns.take(pvcKeys(one))
	if end == nil {
		return nil, nil, &hotplug.Refusal{Reason: ReasonPVCInUse, Message: "Another instance is about to use the PVC.", Again: turn}, nil
	}
	defer func() {
		if release == nil {
			end()
		}
	}()
	if pvcs, err = g.pvcs.pvcObjects(ctx, one); err != nil {
		return nil, nil, nil, err
	}
	t, err := g.unpluggable(ctx, one, pvcs)
	if err != nil {
		return nil, nil, nil, err
	}
	if t == nil {
		return pvcs, end, nil, nil
	}
	why = &hotplug.Refusal{Reason: t.reason, Message: t.message}
	if t.poll || t.reason == ReasonPVCInUse {
		why.Again = pollDataVolume
	}
	return nil, nil, why, nil
}

// unpluggable returns why a VM that runs can't get the one PVC of an instance; nil if it can.
func (g *Guests) unpluggable(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects,
) (*trouble, error) {
	t, err := g.pvcs.unusable(ctx, vmi, pvcs)
	if err != nil {
		return nil, err
	}
	if t != nil {
		for _, use := range pod.PVCs(&vmi.Spec) {
			if t.reason == ReasonPVCNotFound {
				t.message = fmt.Sprintf("PVC %s not found", use.Name) // the start does not wait for it
			}
		}
		return t, nil
	}
	for _, use := range pod.PVCs(&vmi.Spec) {
		if image := pod.Unfilled(pvcs[use.Name]); image != "" {
			return &trouble{reason: ReasonPVCNotFilled, message: fmt.Sprintf(
				"PVC %s/%s is not a copy of image %s yet, and a VM that runs can't make it one; start a VM with it first, "+
					"or remove the PVC's annotation %s.", vmi.Namespace, use.Name, image, pod.AnnotationOrigin)}, nil
		}
	}
	network, t, err := g.disks.find(ctx, vmi, pvcs)
	if err != nil || t != nil {
		return t, err
	}
	for volume, disk := range network {
		return failedCreate(fmt.Errorf("volume %s: %s is a network disk, which VMs get only when they start; restart the VM without hotpluggable",
			volume, disk)), nil
	}
	return nil, nil
}

// holds reports whether an instance's VM has got, or is about to get, a PVC while it runs.
// The attachment pod, which may not be there yet, is not enough: users can delete it.
func holds(vmi *kubevirt.VirtualMachineInstance, claim string) (attachment string, is bool) {
	if vmi.IsFinal() {
		return "", false
	}
	for _, s := range vmi.Status.VolumeStatus {
		if s.HotplugVolume != nil && s.HotplugVolume.AttachPodName != "" && s.Phase != kubevirt.HotplugVolumeUnMounted &&
			s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName == claim {
			return s.HotplugVolume.AttachPodName, true
		}
	}
	return "", false
}

// hotplugUser returns another instance whose VM has got a PVC while it runs, and its
// attachment pod; "" for none.
func (c *pvcAccess) hotplugUser(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, use pod.PVC, pods []corev1.Pod,
) (instance, attachment string, err error) {
	var vmis kubevirt.VirtualMachineInstanceList
	err = c.client.List(ctx, &vmis, client.InNamespace(vmi.Namespace), client.MatchingFields{index.PVC: use.Name})
	if err != nil {
		return "", "", fmt.Errorf("list VMIs with PVC %s/%s: %w", vmi.Namespace, use.Name, err)
	}
	for i := range vmis.Items {
		other := &vmis.Items[i]
		attachment, is := holds(other, use.Name)
		if is && other.UID != vmi.UID && (!use.ReadOnly || !onlyReads(other, use.Name)) {
			return other.Name, attachment, nil
		}
	}
	for i := range pods {
		p := &pods[i]
		instance, own, is := pod.AttachedTo(p)
		if _, mine := vmi.Status.ActivePods[own]; is && !mine && (!use.ReadOnly || !readsOnly(p, use.Name)) {
			return instance, p.Name, nil
		}
	}
	return "", "", nil
}

// onlyReads reports whether an instance can't write a PVC.
func onlyReads(vmi *kubevirt.VirtualMachineInstance, claim string) bool {
	for _, use := range pod.PVCs(&vmi.Spec) {
		if use.Name == claim {
			return use.ReadOnly
		}
	}
	return false // it is being detached
}

// detaching returns a PVC that is not shared and that the instance's VM has still got, though its spec
// does not name it any more; "" for none.
func detaching(vmi *kubevirt.VirtualMachineInstance) string {
	for _, s := range vmi.Status.VolumeStatus {
		gone := s.HotplugVolume == nil || s.HotplugVolume.AttachPodName == "" || s.Phase == kubevirt.HotplugVolumeUnMounted
		if gone || s.MemoryDumpVolume != nil || s.PersistentVolumeClaimInfo == nil || pod.VolumeOf(&vmi.Spec, s.Name) != nil {
			continue
		}
		if !slices.Contains(s.PersistentVolumeClaimInfo.AccessModes, corev1.ReadWriteMany) {
			return s.PersistentVolumeClaimInfo.ClaimName
		}
	}
	return ""
}

// Ended reports whether the VM of an instance's pod has ended; nil is a pod that is gone.
func (g *Guests) Ended(ctx context.Context, p *corev1.Pod) (bool, error) {
	if p == nil {
		return true, nil
	}
	v, err := g.views.look(ctx, p)
	return v.ended(), err
}
