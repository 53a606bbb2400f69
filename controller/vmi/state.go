package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/diskguard"
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
	name := pod.StateOf(p)
	if name == "" {
		return nil
	}
	return &kubevirt.VolumeStatus{Name: pod.StateVolume, PersistentVolumeClaimInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: name}}
}

// moved returns the name of the PVC with the persistent state of an instance for the target of its migration, whose
// source is given. The state comes with the guest to a PVC that this makes, unless several nodes mount the source's.
func (s *states) moved(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, source *corev1.Pod) (string, error) {
	name, pvc := pod.StateOf(source), new(corev1.PersistentVolumeClaim)
	if name == "" {
		return "", nil
	}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: name}, pvc); err != nil {
		return "", fmt.Errorf("read PVC %s/%s, which has the persistent state: %w", vmi.Namespace, name, err)
	}
	if slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) || !Migrating(vmi) {
		return name, nil
	}
	made := pod.MovedState(vmi, vmi.Status.MigrationState.MigrationUID, pvc)
	if err := s.client.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create PVC %s/%s, to which the persistent state moves: %w", vmi.Namespace, made.Name, err)
	}
	return made.Name, nil
}

// settle has the PVC that [states.moved] made, if it did, be the instance's if the guest has moved, and removes the former
// one. Otherwise it removes the PVC. It may be called again.
func (s *states) settle(ctx context.Context, vmi client.ObjectKey, migration types.UID, moved bool) error {
	pvc := new(corev1.PersistentVolumeClaim)
	err := s.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.MovedStateName(vmi.Name, migration)}, pvc)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	_, settled := pvc.Labels[pod.StateLabel]
	switch {
	case !moved && settled:
		return nil
	case !moved:
		return s.remove(ctx, pvc)
	case !settled:
		before := pvc.DeepCopy()
		metav1.SetMetaDataLabel(&pvc.ObjectMeta, pod.StateLabel, pod.LabelOf(vmi.Name))
		if err := s.client.Patch(ctx, pvc, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("label PVC %s/%s, which has the persistent state: %w", pvc.Namespace, pvc.Name, err)
		}
	}
	all, err := state.Labelled(ctx, s.client, vmi.Namespace, vmi.Name)
	if err != nil {
		return err
	}
	owner := metav1.GetControllerOf(pvc)
	for i := range all {
		of := metav1.GetControllerOf(&all[i])
		if all[i].Name != pvc.Name && of != nil && owner != nil && of.UID == owner.UID {
			if err := s.remove(ctx, &all[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *states) remove(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	return diskguard.Delete(ctx, s.client, diskguard.StateMoved, pvc)
}
