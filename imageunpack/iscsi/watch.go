package iscsi

import (
	"context"
	"time"
)

// The pauses between attempts to reach a tgtd that does not run.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Watch calls the function, with a context that ends with ctx, each time that a tgtd starts to answer:
// the first one, and each that replaces it, which has no targets. It returns when ctx ends.
func (d *Daemon) Watch(ctx context.Context, back func(context.Context)) {
	logged := false
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		conn, err := d.dial(ctx)
		if err != nil {
			if !logged && ctx.Err() == nil {
				d.opts.Logger.Debug("tgtd does not answer", "error", err)
				logged = true
			}
			wait(ctx, pause)
			continue
		}
		logged, pause = false, minPause
		// tgtd waits for a request on this connection until it ends.
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		back(ctx)
		_, _ = conn.Read(make([]byte, 1))
		stop()
		conn.Close()
		if ctx.Err() == nil {
			d.opts.Logger.Warn("tgtd ended; guests on iSCSI wait for it", "socket", d.opts.Socket)
		}
		wait(ctx, pause)
	}
}

func wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
