// Package index defines the indexes of the controller's cache that several kinds
// share, and looks objects up by them. It leaves indexes of a single kind to the
// kind's package.
package index

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// PVC finds objects by the names of the PVCs that they use.
	PVC = "nodevirt.io/pvc"
	// Owner finds objects by the UID of their controller, as the function of [OwnerOf] returns it.
	Owner = "nodevirt.io/owner"
	// OwnerNone stands for the UID of objects without a controller.
	OwnerNone = "none"
)

// OwnerOf returns a function for the index [Owner] of a kind of controllers. Objects of other controllers are not in the
// index: there may be many, and each takes memory.
func OwnerOf(kind string) client.IndexerFunc {
	return func(o client.Object) []string {
		switch owner := metav1.GetControllerOf(o); {
		case owner == nil:
			return []string{OwnerNone}
		case owner.Kind != kind:
			return nil
		default:
			return []string{string(owner.UID)}
		}
	}
}

// Add lets a manager's cache index the objects of a kind. By names the index; of returns an
// object's values in it.
func Add(ctx context.Context, m manager.Manager, kind client.Object, by string, of client.IndexerFunc) error {
	if err := m.GetFieldIndexer().IndexField(ctx, kind, by, of); err != nil {
		return fmt.Errorf("index %T by %s: %w", kind, by, err)
	}
	return nil
}

// Handler requests, for each event, the objects of a kind that have a value in an index:
// those of the namespace of the event's object. List is an empty list of the kind. Value
// returns the value for the event's object, such as its name; none are requested for "".
func Handler(cache client.Reader, list client.ObjectList, by string, value func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		of := value(o)
		if of == "" {
			return nil
		}
		return Requests(ctx, cache, list.DeepCopyObject().(client.ObjectList), o.GetNamespace(), by, of)
	})
}

// Requests returns a request for each object of a namespace that has a value in an
// index. List is an empty list of the objects' kind. There are none if the cache is
// being stopped.
func Requests(ctx context.Context, cache client.Reader, list client.ObjectList, namespace, by, value string) []reconcile.Request {
	err := cache.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{by: value},
		client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	var all []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error { // fails only if the function does
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return all
}
