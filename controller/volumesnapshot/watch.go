package volumesnapshot

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// lookForKind is the time between two looks whether the cluster serves VolumeSnapshots.
const lookForKind = time.Minute

// Watch calls changed for each VolumeSnapshot with a label that appears, changes or goes, until ctx
// ends. It waits until the cluster serves the kind.
func (c *Client) Watch(ctx context.Context, label string, changed func(metav1.Object)) error {
	for {
		served, err := c.served(ctx)
		if err == nil && served {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookForKind): // an API server that is away is asked again, too
		}
	}
	only := func(o *metav1.ListOptions) { o.LabelSelector = label }
	informer := dynamicinformer.NewFilteredDynamicInformer(c.dynamic, version().WithResource("volumesnapshots"),
		metav1.NamespaceAll, 0, cache.Indexers{}, only).Informer()
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watch VolumeSnapshots: %w", err)
	}
	report := func(o any) {
		if gone, is := o.(cache.DeletedFinalStateUnknown); is {
			o = gone.Obj
		}
		if object, is := o.(metav1.Object); is {
			changed(object)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report, DeleteFunc: report,
		UpdateFunc: func(_, next any) { report(next) },
	}); err != nil {
		return fmt.Errorf("watch VolumeSnapshots: %w", err)
	}
	informer.RunWithContext(ctx)
	return nil
}

// slim drops what a watch does not report, so that the controller does not hold it.
func slim(o any) (any, error) {
	if object, is := o.(*unstructured.Unstructured); is {
		object.SetManagedFields(nil)
		delete(object.Object, "spec")
		delete(object.Object, "status")
	}
	return o, nil
}

// served reports whether the cluster serves VolumeSnapshots.
func (c *Client) served(ctx context.Context) (bool, error) {
	_, err := c.in(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
