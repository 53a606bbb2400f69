package domain

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
)

// session is the connection to libvirtd for events. Its loss shows that libvirtd
// has ended. Calls have other connections.
type session struct {
	conn   *libvirt.Connect
	events []int // ids of the event registrations
	ports  int
	lost   chan string // gets the reason when the connection breaks
}

// open opens a session; send gets its events, on libvirt's event loop. A libvirtd
// that hangs accepts a connection and does not answer, and libvirt can't cancel
// the attempt: the end of ctx ends the waiting alone.
func open(ctx context.Context, uri string, send func(Event)) (*session, error) {
	type result struct {
		s   *session
		err error
	}
	done := make(chan result)
	go func() {
		s, err := openNow(uri, send)
		select {
		case done <- result{s, err}:
		case <-ctx.Done():
			if s != nil {
				s.close()
			}
		}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func openNow(uri string, send func(Event)) (*session, error) {
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		return nil, plain(err)
	}
	s := &session{conn: conn, ports: -1, lost: make(chan string, 1)}
	if err := s.listen(send); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) listen(send func(Event)) error {
	err := s.conn.RegisterCloseCallback(func(_ *libvirt.Connect, why libvirt.ConnectCloseReason) {
		select {
		case s.lost <- closeReason(why):
		default:
		}
	})
	if err != nil {
		return fmt.Errorf("watch the connection: %w", plain(err))
	}
	if err := s.conn.SetKeepAlive(keepAlive, keepAliveCount); err != nil {
		return fmt.Errorf("enable keepalive: %w", plain(err))
	}
	for _, register := range []func() (int, error){
		func() (int, error) { return s.conn.DomainEventLifecycleRegister(nil, lifecycleCallback(send)) },
		func() (int, error) { return s.conn.DomainEventRebootRegister(nil, rebootCallback(send)) },
		func() (int, error) { return s.conn.DomainEventWatchdogRegister(nil, watchdogCallback(send)) },
	} {
		id, err := register()
		if err != nil {
			return fmt.Errorf("subscribe to events: %w", plain(err))
		}
		s.events = append(s.events, id)
	}
	s.ports, err = s.conn.DomainQemuMonitorEventRegister(nil, portEvent, portCallback(send), 0)
	if err != nil {
		return fmt.Errorf("subscribe to QEMU's events: %w", plain(err))
	}
	return nil
}

// close ends the subscriptions and the connection. It ignores errors, which a broken
// connection always causes.
func (s *session) close() {
	for _, id := range s.events {
		_ = s.conn.DomainEventDeregister(id)
	}
	if s.ports >= 0 {
		_ = s.conn.DomainQemuEventDeregister(s.ports)
	}
	_ = s.conn.UnregisterCloseCallback()
	_, _ = s.conn.Close()
}

func closeReason(r libvirt.ConnectCloseReason) string {
	switch r {
	case libvirt.CONNECT_CLOSE_REASON_EOF:
		return "connection closed"
	case libvirt.CONNECT_CLOSE_REASON_KEEPALIVE:
		return "no answer to keepalive"
	case libvirt.CONNECT_CLOSE_REASON_ERROR:
		return "connection broken"
	default:
		return fmt.Sprintf("reason %d", r)
	}
}
