package replicaset

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

type (
	replicaSet = kubevirt.VirtualMachineInstanceReplicaSet
	instance   = kubevirt.VirtualMachineInstance
)

// Reconciler brings one replica set at a time nearer to what it says.
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events reach the users of replica sets.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time

	failures failures
}

// Reconcile does what there is to do for the replica set of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := new(replicaSet)
	if err := r.Client.Get(ctx, req.NamespacedName, set); err != nil {
		r.failures.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	selector, err := selectorOf(set)
	if err != nil { // the same would come out the next time: an edit starts it
		return ctrl.Result{}, r.report(ctx, set, outcome{failure: &failure{"FailedCreate", err}})
	}
	all, err := r.members(ctx, set, selector)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.Now()
	held, news := r.failures.note(set, all, now)
	if news != nil {
		r.Events.Eventf(set, news.of, corev1.EventTypeWarning, reasonBackOff, "Start", "%v", news)
	}
	p := decide(set, all, held.wait(now) > 0, now)
	o := outcome{plan: p, selector: selector}
	o.made, err = r.create(ctx, set, all, p.missing)
	if err != nil {
		o.failure = &failure{"FailedCreate", err}
	} else if err = r.remove(ctx, set, p.remove); err != nil {
		o.failure = &failure{"FailedDelete", err}
	} else if len(p.held) > 0 {
		o.failure = &failure{reasonBackOff, held}
	}
	err = errors.Join(r.report(ctx, set, o), err)
	if err != nil || len(p.held) == 0 {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: held.wait(now)}, nil
}

// selectorOf is the set's selector. Where admission runs there is no error.
func selectorOf(set *replicaSet) (labels.Selector, error) {
	if set.Spec.Template == nil {
		return nil, errors.New("spec.template: required")
	}
	return replicas.Selector(set.Spec.Selector, "template", set.Spec.Template.ObjectMeta.Labels)
}
