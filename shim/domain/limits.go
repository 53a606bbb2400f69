package domain

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
)

// errCallTime ends the wait for a call whose caller has no deadline.
var errCallTime = fmt.Errorf("libvirtd has not answered within %s: %w", bounds.CallTime, context.DeadlineExceeded)

// patientKey is the key of contexts whose calls may take as long as they need.
type patientKey struct{}

// patient returns a context for calls that read or write a guest's whole memory, and have other bounds.
func patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

// inTime returns a context for the wait for libvirtd's answer: the caller's, or one with a deadline if it has none. A
// context that can't end is that of a call inside another one, which waits in the caller's place.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	_, has := ctx.Deadline()
	if has || ctx.Done() == nil || ctx.Value(patientKey{}) != nil {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, bounds.CallTime, errCallTime)
}

// newOpen returns the budget of calls that libvirtd has not answered. Each has a thread of this process, also after its
// caller has given up.
func newOpen() *budget.Budget {
	return budget.New("unanswered calls to libvirtd", bounds.OpenCalls, bounds.DomainOpenCalls)
}

// open counts a call until libvirtd has answered.
func (c *Connection) open(op, object string) (answered func(), err error) {
	if err := c.unanswered.Take(object, 1); err != nil {
		return nil, &failure{op: op, object: object, kind: ErrUnavailable, detail: err}
	}
	return func() { c.unanswered.Release(object, 1) }, nil
}
