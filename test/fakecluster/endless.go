package fakecluster

import (
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endless is a reader whose lists of a type have no end.
type endless struct {
	client.Reader
	of reflect.Type
}

// Endless returns a reader that reads from another one. Each of its lists of one type is a page without objects, which others
// follow.
func Endless(from client.Reader, of client.ObjectList) client.Reader {
	return endless{from, reflect.TypeOf(of)}
}

func (e endless) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if reflect.TypeOf(list) != e.of {
		return e.Reader.List(ctx, list, options...)
	}
	list.SetContinue("more")
	return nil
}

// list selects pods by their phase, as an API server does. The client's fake has no selectors that exclude a value.
func list(ctx context.Context, from client.Reader, into client.ObjectList, how ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(how)
	pods, is := into.(*corev1.PodList)
	if !is || !ofPhase(o.FieldSelector) {
		return from.List(ctx, into, how...)
	}
	selector := o.FieldSelector
	o.FieldSelector = nil
	if err := from.List(ctx, pods, &o); err != nil {
		return err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !selector.Matches(phase(p.Status.Phase)) })
	return nil
}

// ofPhase reports whether a selector is of the phase alone. Others are indexes of the fake.
func ofPhase(s fields.Selector) bool {
	return s != nil && !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool { return r.Field != "status.phase" })
}

func phase(p corev1.PodPhase) fields.Set { return fields.Set{"status.phase": string(p)} }

// ended is a reader of a namespace with pods without end that have ended.
type ended struct{ client.Reader }

// Ended returns a reader that reads from another one. Each of its lists of pods is a page of one that has ended, which others
// follow, unless the list's selector excludes those.
func Ended(from client.Reader) client.Reader { return ended{from} }

func (e ended) List(ctx context.Context, into client.ObjectList, how ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(how)
	if pods, is := into.(*corev1.PodList); is {
		for _, p := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			if o.FieldSelector == nil || ofPhase(o.FieldSelector) && o.FieldSelector.Matches(phase(p)) {
				pods.Items = []corev1.Pod{{Status: corev1.PodStatus{Phase: p}}}
				pods.SetContinue("more")
				return nil
			}
		}
	}
	return e.Reader.List(ctx, into, how...)
}
