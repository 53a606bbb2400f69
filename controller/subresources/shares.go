package subresources

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
)

// retryAfter is when a client that was refused for want of a share may call again, in seconds.
const retryAfter = 5

// shares bound the streams of each user and to each namespace, so that none keeps others from their VMs, or the API server
// from admission.
type shares struct{ users, namespaces *budget.Budget }

func newShares() *shares {
	return &shares{
		users:      budget.New("streams", bounds.Streams, bounds.UserStreams),
		namespaces: budget.New("streams", bounds.Streams, bounds.NamespaceStreams),
	}
}

// take counts a stream until release, or refuses it as the API server refuses requests above its own limits.
func (s *shares) take(user, namespace string) (release func(), err error) {
	if err := s.users.Take("user "+user, 1); err != nil {
		return nil, apierrors.NewTooManyRequests(err.Error(), retryAfter)
	}
	if err := s.namespaces.Take("namespace "+namespace, 1); err != nil {
		s.users.Release("user "+user, 1)
		return nil, apierrors.NewTooManyRequests(err.Error(), retryAfter)
	}
	return func() {
		s.users.Release("user "+user, 1)
		s.namespaces.Release("namespace "+namespace, 1)
	}, nil
}

// counted returns a handler of a stream that has a share as long as the stream lasts.
func (s *shares) counted(serve handler) handler {
	return func(ctx context.Context, c *call) error {
		release, err := s.take(c.caller.GetName(), c.namespace)
		if err != nil {
			return err
		}
		defer release()
		return serve(ctx, c)
	}
}
