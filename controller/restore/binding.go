package restore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bind waits until all PVCs are bound. Where Kubernetes binds PVCs when a pod uses them, it has a pod use them: a restored
// disk is there only then, and users delete the snapshot of a complete restore.
func (v *volumes) bind(
	ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, all, unbound []*corev1.PersistentVolumeClaim,
) error {
	if len(unbound) == 0 {
		for _, pvc := range all {
			none, err := v.binder.Release(ctx, w.rs.UID, client.ObjectKeyFromObject(pvc))
			if err != nil {
				return err
			}
			if !none {
				return soon("Waiting for the end of the pod that PVC %s was bound for", pvc.Name)
			}
		}
		return nil
	}
	why := ""
	for _, pvc := range unbound {
		late, err := v.late(ctx, pvc)
		if err != nil {
			return err
		}
		if !late {
			continue
		}
		vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.rs.Namespace, Name: w.rs.Spec.Target.Name}}
		vmi.Spec = *content.Spec.Source.VirtualMachine.Spec.Template.Spec.DeepCopy()
		// The PVCs are bound where a VM can run, whatever else runs there now.
		vmi.Spec.Networks, vmi.Spec.Domain.Devices.Interfaces = nil, nil
		vmi.Spec.Domain.CPU, vmi.Spec.Domain.Memory, vmi.Spec.Domain.Resources = nil, nil, kubevirt.ResourceRequirements{}
		owner := metav1.OwnerReference{
			APIVersion: api.SchemeGroupVersion.String(), Kind: "VirtualMachineRestore", Name: w.rs.Name, UID: w.rs.UID,
		}
		if why, err = v.binder.Bind(ctx, vmi, owner, all); err != nil {
			return err
		}
		break
	}
	return waitFor("Waiting for PVC %s%s", unbound[0].Name, why)
}

// late reports whether Kubernetes binds a PVC when a pod uses it.
func (v *volumes) late(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	if pvc.Spec.StorageClassName == nil {
		return false, nil
	}
	class := new(storagev1.StorageClass)
	if err := v.live.Get(ctx, client.ObjectKey{Name: *pvc.Spec.StorageClassName}, class); err != nil {
		return false, fmt.Errorf("read StorageClass %s: %w", *pvc.Spec.StorageClassName, err)
	}
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}
