// Package pages lists objects of a namespace that no cache has, page by page and within a bound: users decide how many there
// are, and each may have a MiB. It leaves to its callers what they do without an answer: what decides whether something may be
// deleted or used must take [ErrTooMany] for the answer that prevents it.
package pages

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// size is how many objects are read at a time.
const size = 16

// ErrTooMany says that a namespace has more objects of a kind than the controller reads.
var ErrTooMany = errors.New("too many objects in the namespace")

// Unfinished selects pods that have not ended, which alone use their PVCs. Namespaces have very many that have, as of jobs.
func Unfinished() client.ListOption {
	return client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)}
}

// Each lists the objects of a namespace page by page, until look returns true or an error. Empty returns an empty list. Live
// must read from the API server: a cache returns the first page alone. The error is [ErrTooMany] if look has not ended the
// list after [bounds.Others] objects or [bounds.OthersTime].
func Each[L client.ObjectList](
	ctx context.Context, live client.Reader, namespace string, empty func() L, look func(L) (done bool, err error), options ...client.ListOption,
) error {
	limited, cancel := context.WithTimeoutCause(ctx, bounds.OthersTime,
		fmt.Errorf("%w: not read within %s: delete those that have ended", ErrTooMany, bounds.OthersTime.Truncate(time.Second)))
	defer cancel()
	seen := 0
	for next := ""; ; {
		if seen >= bounds.Others {
			return fmt.Errorf("%w: more than %d: delete those that have ended", ErrTooMany, bounds.Others)
		}
		page := empty()
		all := append([]client.ListOption{client.InNamespace(namespace), client.Limit(size), client.Continue(next)}, options...)
		if err := live.List(limited, page, all...); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				return context.Cause(limited)
			}
			return err
		}
		if done, err := look(page); done || err != nil {
			return err
		}
		seen += max(1, apimeta.LenList(page))
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
