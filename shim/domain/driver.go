package domain

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// A connection on which libvirtd has not answered for
	// keepAlive × (keepAliveCount + 1) is given up.
	keepAlive      = 10 // seconds
	keepAliveCount = 2
	// Attempts to connect are at least minRetry and at most maxRetry apart.
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
)

// Driver drives the domains of one libvirtd. Its methods can be called from
// any goroutine, while [Driver.Run] keeps the connection; without one they
// fail at once with [ErrUnavailable].
//
// Every call ends with its context, even if libvirtd hangs. What it has asked
// of libvirtd may then still happen.
type Driver struct {
	uri    string
	runDir string
	log    *slog.Logger

	mu        sync.Mutex
	calls     *pool         // nil while libvirtd is away
	connected chan struct{} // closed while calls is set

	starts      starts
	subscribers subscribers
	stats       chan struct{} // holds the calls of Stats under way
}

// NewDriver makes a driver of the libvirtd at uri, such as "qemu:///system".
// runDir is that libvirtd's run folder (/run/libvirt), where it keeps the
// files with QEMU's process ids.
func NewDriver(uri, runDir string, log *slog.Logger) *Driver {
	return &Driver{uri: uri, runDir: runDir, log: log, connected: make(chan struct{}), stats: make(chan struct{}, statsAtOnce)}
}

// Run keeps a connection to libvirtd until ctx ends, which is no error. It
// connects again whenever libvirtd went away, for as long as that takes.
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
			d.log.Warn("libvirtd went away, guests run on", "uri", d.uri, "reason", reason)
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

// connect tries until it has a session or ctx ends.
func (d *Driver) connect(ctx context.Context) (*session, error) {
	var told bool
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		s, err := open(ctx, d.uri, d.subscribers.send)
		if err == nil {
			return s, nil
		}
		if ctx.Err() == nil && !told {
			told = true
			d.log.Warn("libvirtd is away, trying on", "uri", d.uri, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// publish lets calls reach libvirtd, and has subscribers read all states
// again: what happened while there was no connection, no event tells.
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
