package imageunpack

import (
	"context"
	"fmt"
	"time"
)

// listenAgain is how long a containerd is left alone that ended a subscription.
const listenAgain = time.Second

// Removals tells, until ctx ends, that an image's name may have been removed: several removals may
// be one word, and after a time without containerd there is one in any case.
func (u *Unpacker) Removals(ctx context.Context) <-chan struct{} {
	told := make(chan struct{}, 1)
	tell := func() {
		select {
		case told <- struct{}{}:
		default: // who listens has not looked since the last one
		}
	}
	go func() {
		for ctx.Err() == nil {
			u.listen(ctx, tell)
			tell()
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	}()
	return told
}

// listen tells of removals until ctx or containerd ends.
func (u *Unpacker) listen(ctx context.Context, tell func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, errs := u.client.Subscribe(ctx, fmt.Sprintf(`topic=="/images/delete",namespace==%q`, u.opts.Namespace))
	for {
		select {
		case <-events:
			tell()
		case <-errs:
			return
		}
	}
}
