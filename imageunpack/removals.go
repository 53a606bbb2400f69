package imageunpack

import (
	"context"
	"fmt"
	"time"
)

// listenAgain is the pause between the end of a subscription and the next.
const listenAgain = time.Second

// Removals returns a channel that receives a value when the name of an image may have been removed,
// until ctx ends. One value may stand for several removals. A time without containerd counts as one.
func (u *Unpacker) Removals(ctx context.Context) <-chan struct{} {
	removed := make(chan struct{}, 1)
	notify := func() {
		select {
		case removed <- struct{}{}:
		default: // the receiver has not read the last one yet
		}
	}
	go func() {
		for ctx.Err() == nil {
			u.listen(ctx, notify)
			notify()
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	}()
	return removed
}

// listen calls notify for each removal until ctx or the connection to containerd ends.
func (u *Unpacker) listen(ctx context.Context, notify func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, errs := u.client.Subscribe(ctx, fmt.Sprintf(`topic=="/images/delete",namespace==%q`, u.opts.Namespace))
	for {
		select {
		case <-events:
			notify()
		case <-errs:
			return
		}
	}
}
