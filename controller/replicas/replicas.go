// Package replicas has what the controllers of replicas share: they create as many
// objects of a template as a user requests. It leaves the choice of the objects to
// the controllers.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// atOnce bounds the requests for one owner that are under way at a time.
const atOnce = 16

// Most bounds the objects that one pass makes for an owner, whose number any user may write. Each object that is made brings
// the next pass.
const Most = 500

// Create calls create for each name, first for one, then for twice as many each time:
// the API server is not asked n times for what it refuses, because of a quota for
// example. It returns the number of successes.
func Create[T any](names []T, create func(name T) error) (int, error) {
	var made atomic.Int64
	for batch := 1; len(names) > 0; batch = min(2*batch, atOnce) {
		now := names[:min(batch, len(names))]
		names = names[len(now):]
		err := Each(now, func(name T) error {
			err := create(name)
			if err == nil {
				made.Add(1)
			}
			return err
		})
		if err != nil {
			return int(made.Load()), err
		}
	}
	return int(made.Load()), nil
}

// Each calls do for each element, for some of them at a time, and returns the first
// error.
func Each[T any](all []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, one := range all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

// Selector returns an owner's selector, which must select the labels of its template.
// Template is the template's field. Where admission runs there is no error.
func Selector(s *metav1.LabelSelector, template string, of map[string]string) (labels.Selector, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, errors.New("spec.selector: required")
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, err
	}
	if !selector.Matches(labels.Set(of)) {
		return nil, fmt.Errorf("spec.selector: does not match the labels of spec.%s.metadata.labels", template)
	}
	return selector, nil
}

// Wanted returns how many replicas an owner should have.
func Wanted(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// object is a pointer to an object of the API.
type object[T any] interface {
	*T
	client.Object
}

// Exists asks the API server whether an owner still exists and is not being deleted,
// which the cache may not know yet.
func Exists[T any, P object[T]](ctx context.Context, live client.Reader, owner P) (bool, error) {
	have, err := read[T](ctx, live, owner)
	return have != nil, err
}

// Unchanged asks the API server whether an owner is as the cache has it. The cache of its objects may be newer than that
// of owners: what another controller has made for a larger number of replicas is then no surplus.
func Unchanged[T any, P object[T]](ctx context.Context, live client.Reader, owner P) (bool, error) {
	have, err := read[T](ctx, live, owner)
	return have != nil && have.GetGeneration() == owner.GetGeneration(), err
}

// read returns an owner as the API server has it; nil if it does not exist any more, or is being deleted.
func read[T any, P object[T]](ctx context.Context, live client.Reader, owner P) (P, error) {
	have := P(new(T))
	err := live.Get(ctx, client.ObjectKeyFromObject(owner), have)
	if err != nil || have.GetUID() != owner.GetUID() || have.GetDeletionTimestamp() != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return have, nil
}

// ReportPause sends KubeVirt's event to an owner that was paused or resumed, if it was.
func ReportPause(to events.EventRecorder, owner client.Object, was, is bool) {
	switch {
	case !was && is:
		to.Eventf(owner, nil, corev1.EventTypeNormal, "SuccessfulPaused", "Pause", "Paused")
	case was && !is:
		to.Eventf(owner, nil, corev1.EventTypeNormal, "SuccessfulResumed", "Resume", "Resumed")
	}
}
