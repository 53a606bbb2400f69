package snapshot

import (
	"context"
	"fmt"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writer writes objects of the cluster.
type writer struct{ client client.Client }

// patcher is what writes objects; [writer].
type patcher interface {
	patch(ctx context.Context, before, now client.Object) error
	patchStatus(ctx context.Context, before, now client.Object) error
}

// patch writes the difference between two states of an object, unless it has changed
// meanwhile or is gone.
func (wr *writer) patch(ctx context.Context, before, now client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := wr.client.Patch(ctx, now, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write %s %s/%s: %w", kindOf(now), now.GetNamespace(), now.GetName(), err))
	}
	return nil
}

func (wr *writer) patchStatus(ctx context.Context, before, now client.Object) error {
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := wr.client.Status().Patch(ctx, now, p); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of %s %s/%s: %w", kindOf(now), now.GetNamespace(), now.GetName(), err))
	}
	return nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *kubevirt.VirtualMachine:
		return "VM"
	case *vmContent:
		return "snapshot content"
	}
	return "snapshot"
}
