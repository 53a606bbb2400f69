package domain

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// A connection is closed when libvirtd has not answered on it for
	// keepAlive × (keepAliveCount + 1).
	keepAlive      = 10 // seconds
	keepAliveCount = 2
	// The pause between two attempts to connect is minRetry to maxRetry.
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// Driver controls the domains of one libvirtd. Its methods can be called from
// any goroutine, while [Driver.Run] keeps the connection. Without a connection
// they fail at once with [ErrUnavailable].
//
// Every call ends with its context, even if libvirtd hangs. libvirtd may then
// still carry out the request.
type Driver struct {
	uri    string
	runDir string
	log    *slog.Logger

	mu        sync.Mutex
	calls     *pool         // nil while there is no libvirtd
	connected chan struct{} // closed while calls is set

	starts      starts
	subscribers subscribers
	stats       chan struct{} // holds the running calls of Stats
}

// NewDriver returns a driver for the libvirtd at uri, such as "qemu:///system".
// runDir is that libvirtd's run folder (/run/libvirt), which has the files
// with QEMU's process ids.
func NewDriver(uri, runDir string, log *slog.Logger) *Driver {
	return &Driver{uri: uri, runDir: runDir, log: log, connected: make(chan struct{}), stats: make(chan struct{}, statsAtOnce)}
}

// Run keeps a connection to libvirtd until ctx ends, which is no error. It
// reconnects whenever the connection is lost, without a limit.
func (d *Driver) Run(ctx context.Context) error {
	if err := eventLoop(); err != nil {
		return err
	}
	for {
		s, err := d.connect(ctx)
		if err != nil {
			return nil //nolint:nilerr // only ctx ends the attempts
		}
		d.publish()
		d.log.Info("connected to libvirtd", "uri", d.uri)
		select {
		case reason := <-s.lost:
			d.retract()
			s.close()
			d.log.Warn("lost the connection to libvirtd; guests continue to run", "uri", d.uri, "reason", reason)
		case <-ctx.Done():
			d.retract()
			s.close()
			return nil
		}
	}
}

// Connected waits until there is a connection.
func (d *Driver) Connected(ctx context.Context) error {
	d.mu.Lock()
	connected := d.connected
	d.mu.Unlock()
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return &failure{op: "connect to", object: "libvirtd at " + d.uri, kind: ErrUnavailable, detail: context.Cause(ctx)}
	}
}

// connect retries until it has a session or ctx ends.
func (d *Driver) connect(ctx context.Context) (*session, error) {
	var logged bool
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		s, err := open(ctx, d.uri, d.subscribers.send)
		if err == nil {
			return s, nil
		}
		if ctx.Err() == nil && !logged {
			logged = true
			d.log.Warn("can't connect to libvirtd, retrying", "uri", d.uri, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publish lets calls use the connection, and makes subscribers read all states
// again: there are no events for changes without a connection.
func (d *Driver) publish() {
	d.mu.Lock()
	d.calls = &pool{uri: d.uri}
	close(d.connected)
	d.mu.Unlock()
	d.subscribers.send(Event{Kind: EventResync})
}

func (d *Driver) retract() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls.close()
	d.calls = nil
	d.connected = make(chan struct{})
}
