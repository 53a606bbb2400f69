package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// conditionDisksDeleted says that a disk of the running guest has been deleted. Kubernetes keeps its content until the guest's
// pod ends, and no longer.
const conditionDisksDeleted kubevirt.VirtualMachineConditionType = "nodevirt.io/DisksDeleted"

const reasonDiskDeleted = "DiskDeleted"

// maxVanishing is how many of the disks a condition names.
const maxVanishing = 5

// vanishing returns, for people, which PVCs of a running instance are being deleted, and how to keep their content; empty for
// none.
func (r *Reconciler) vanishing(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (string, error) {
	if vmi == nil || vmi.IsFinal() || vmi.DeletionTimestamp != nil {
		return "", nil
	}
	var all []string
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := new(corev1.PersistentVolumeClaim)
		err := r.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: use.Name}, pvc)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read PVC %s/%s: %w", vmi.Namespace, use.Name, err)
		}
		if pvc.DeletionTimestamp == nil || pvc.Spec.VolumeName == "" {
			continue
		}
		all = append(all, fmt.Sprintf("PVC %s (PersistentVolume %s)", use.Name, pvc.Spec.VolumeName))
	}
	if len(all) == 0 {
		return "", nil
	}
	if slices.Sort(all); len(all) > maxVanishing {
		all = append(all[:maxVanishing], fmt.Sprintf("%d others", len(all)-maxVanishing))
	}
	return strings.Join(all, ", ") + ": deleted while the VM runs. The content goes when the VM stops, and until then the VM cannot migrate. " +
		"To keep the content, set the PersistentVolume's reclaim policy before the VM stops: " +
		`kubectl patch pv NAME -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, nil
}
