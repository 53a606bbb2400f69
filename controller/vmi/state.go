package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
)

// states finds and makes the PVCs with the persistent state of instances.
type states struct {
	client client.Client
	config config.Source // has the storage class of those that it makes
}

// pvc returns the PVC of an instance, which it makes if there is none; nil for an instance without
// persistent state. The cache has what this process has made: the read waits for it.
func (s *states) pvc(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.PersistentVolumeClaim, error) {
	if !pod.KeepsState(vmi) {
		return nil, nil
	}
	c, err := s.config.Read(ctx)
	if err != nil {
		return nil, err
	}
	made := pod.NewState(vmi, pod.StateOptions{Class: c.StateClass(), Shared: c.Flags.StateShared})
	all, err := state.Labelled(ctx, s.client, vmi.Namespace, vmi.Name)
	if err != nil {
		return nil, err
	}
	if found := pod.FindState(vmi, all); found != nil {
		return found, nil
	}
	switch err := s.client.Create(ctx, made); {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("PVC %s/%s, for the persistent state, exists, and is being deleted, or does not have label %s and the VM as its owner: "+
			"remove it", vmi.Namespace, made.Name, pod.StateLabel)
	case err != nil:
		return nil, fmt.Errorf("create PVC %s/%s for the persistent state: %w", vmi.Namespace, made.Name, err)
	}
	return made, nil
}

// addState adds the PVC with an instance's persistent state, as its pod has it, to its PVCs that exist.
func (c *pvcAccess) addState(ctx context.Context, p *corev1.Pod, all pod.PVCObjects) error {
	volume := stateVolume(p)
	if volume == nil {
		return nil
	}
	name, pvc := volume.PersistentVolumeClaimInfo.ClaimName, new(corev1.PersistentVolumeClaim)
	switch err := c.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, pvc); {
	case err == nil:
		all[name] = pvc
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read PVC %s/%s: %w", p.Namespace, name, err)
	}
	return nil
}

// stateVolume is the volume with the persistent state of an instance, as its pod has it; nil if it has
// none.
func stateVolume(p *corev1.Pod) *kubevirt.VolumeStatus {
	if p == nil {
		return nil
	}
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; v.Name == pod.StateVolume && c != nil {
			return &kubevirt.VolumeStatus{Name: v.Name, PersistentVolumeClaimInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: c.ClaimName}}
		}
	}
	return nil
}
