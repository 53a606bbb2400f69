package iscsi

import (
	"context"
	"time"
)

// Pauses between attempts to reach a tgtd that is away.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Watch calls back, with a context that ends with ctx, each time that a tgtd begins to answer: the
// one that is there at first, and each that replaces it and knows no targets. It returns when ctx
// ends.
func (d *Daemon) Watch(ctx context.Context, back func(context.Context)) {
	told := false
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		conn, err := d.dial(ctx)
		if err != nil {
			if !told && ctx.Err() == nil {
				d.opts.Logger.Debug("tgtd is away", "error", err)
				told = true
			}
			wait(ctx, pause)
			continue
		}
		told, pause = false, minPause
		// tgtd waits for a request on this connection as long as it lives.
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		back(ctx)
		_, _ = conn.Read(make([]byte, 1))
		stop()
		conn.Close()
		if ctx.Err() == nil {
			d.opts.Logger.Warn("tgtd went away, guests on iSCSI wait for it", "socket", d.opts.Socket)
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
