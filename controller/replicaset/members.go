package replicaset

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/replicas"
)

// members returns the set's instances. It adopts running instances without an owner that
// the selector selects, and releases those that it no longer selects: these continue
// without the set.
func (r *Reconciler) members(ctx context.Context, set *replicaSet, selector labels.Selector) ([]*instance, error) {
	owned, err := r.list(ctx, set.Namespace, string(set.UID))
	if err != nil {
		return nil, err
	}
	var all []*instance
	for _, vmi := range owned {
		if vmi.DeletionTimestamp != nil || selector.Matches(labels.Set(vmi.Labels)) {
			all = append(all, vmi)
		} else if err := r.release(ctx, set, vmi); err != nil {
			return nil, err
		}
	}
	if set.DeletionTimestamp != nil {
		return all, nil
	}
	orphans, err := r.list(ctx, set.Namespace, index.OwnerNone)
	if err != nil {
		return nil, err
	}
	orphans = slices.DeleteFunc(orphans, func(vmi *instance) bool {
		return vmi.DeletionTimestamp != nil || vmi.IsFinal() || !selector.Matches(labels.Set(vmi.Labels))
	})
	if len(orphans) == 0 {
		return all, nil
	}
	// A set that is being deleted, which the cache may not know yet, takes nothing along.
	if there, err := replicas.Exists(ctx, r.Live, set); err != nil || !there {
		return all, err
	}
	for _, vmi := range orphans {
		if err := r.adopt(ctx, set, vmi); err != nil {
			return nil, err
		}
		all = append(all, vmi)
	}
	return all, nil
}

func (r *Reconciler) list(ctx context.Context, namespace, owner string) ([]*instance, error) {
	var list kubevirt.VirtualMachineInstanceList
	err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index.Owner: owner})
	if err != nil {
		return nil, fmt.Errorf("list VMIs: %w", err)
	}
	all := make([]*instance, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

func (r *Reconciler) adopt(ctx context.Context, set *replicaSet, vmi *instance) error {
	return r.changeOwners(ctx, vmi, "adopt", append(slices.Clone(vmi.OwnerReferences), ownerReference(set)))
}

func (r *Reconciler) release(ctx context.Context, set *replicaSet, vmi *instance) error {
	return r.changeOwners(ctx, vmi, "release", slices.DeleteFunc(slices.Clone(vmi.OwnerReferences),
		func(o metav1.OwnerReference) bool { return o.UID == set.UID }))
}

func (r *Reconciler) changeOwners(ctx context.Context, vmi *instance, verb string, owners []metav1.OwnerReference) error {
	before := vmi.DeepCopy()
	vmi.OwnerReferences = owners
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("%s VMI %s: %w", verb, vmi.Name, err))
	}
	return nil
}

func ownerReference(set *replicaSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, kubevirt.VirtualMachineInstanceReplicaSetGroupVersionKind)
}
