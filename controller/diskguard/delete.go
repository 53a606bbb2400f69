package diskguard

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Delete deletes a PVC as it was read: neither a later one of its name, nor one that has changed since. It is no error
// that the PVC is gone. Row says by which right.
func Delete(ctx context.Context, by client.Writer, row Row, pvc *corev1.PersistentVolumeClaim) error {
	if pvc.DeletionTimestamp != nil {
		return nil
	}
	err := by.Delete(ctx, pvc, client.Preconditions{UID: &pvc.UID, ResourceVersion: &pvc.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PVC %s/%s (%s): %w", pvc.Namespace, pvc.Name, row, err)
	}
	return nil
}
