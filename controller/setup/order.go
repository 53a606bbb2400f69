package setup

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// urgent is the priority of the requests of [Urgent]. Others have 0, or less if their objects existed before the
// cache did.
const urgent = 10

// Urgent returns a handler that requests the object with the name of an event's object. Requests whose
// event's object meets the condition are reconciled before all others, in their order.
func Urgent(when func(client.Object) bool) handler.EventHandler {
	add := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		r := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
		if by, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok && when(o) {
			by.AddWithOpts(priorityqueue.AddOpts{Priority: new(urgent)}, r)
			return
		}
		q.Add(r)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(e.Object, q)
		},
	}
}

// Unhurried returns a reconciler whose requests are urgent only once: the queue would repeat the priority of
// one that failed, and many objects that fail would keep the others waiting.
func Unhurried(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if result.Priority == nil {
			result.Priority = new(0)
		}
		return result, err
	})
}
