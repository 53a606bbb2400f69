package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settlePrevious ends and releases the pods of earlier instances of a name, which
// were removed in spite of their finalizer. It returns the name of a pod that has not
// ended; "" if there is none. Vmi is the present instance; nil for none.
func (r *Reconciler) settlePrevious(
	ctx context.Context, key types.NamespacedName, vmi *kubevirt.VirtualMachineInstance,
) (string, error) {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingFields{indexInstance: key.Name}, client.DisableReadYourWritesConsistency)
	if err != nil {
		return "", fmt.Errorf("list pods of VMI %s: %w", key, err)
	}
	running := ""
	for i := range pods.Items {
		p := &pods.Items[i]
		if from, _ := originOf(p); vmi != nil && from.uid == vmi.UID {
			continue
		}
		ended, err := r.settle(ctx, key, p)
		if err != nil {
			return "", err
		}
		if !ended {
			running = p.Name
		}
	}
	return running, nil
}

// settle reports whether an orphaned pod has ended, and deletes it if it has not.
func (r *Reconciler) settle(ctx context.Context, key types.NamespacedName, p *corev1.Pod) (bool, error) {
	current := new(kubevirt.VirtualMachineInstance)
	from, _ := originOf(p)
	switch err := r.Live.Get(ctx, key, current); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, fmt.Errorf("read VMI %s: %w", key, err)
	case current.UID == from.uid:
		return false, nil // the cache of VMIs is behind that of pods
	}
	v, err := r.look(ctx, p)
	if err != nil {
		return false, err
	}
	if p.DeletionTimestamp == nil {
		if err := r.deletePod(ctx, p); err != nil {
			return false, err
		}
		return v.ended(), nil
	}
	return v.ended(), r.release(ctx, v)
}
