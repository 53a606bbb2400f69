package domain

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events. Every end of a domain sends Stopped. Shutdown comes before
// it if the guest powered off (ReasonShutdown) or QEMU received a signal to end
// (ReasonDestroyed; mostly from libvirtd, in [Lifecycle.Destroy]), and Crashed if
// the guest panicked.
const (
	EventDefined   EventKind = "defined"
	EventUndefined EventKind = "undefined"
	EventStarted   EventKind = "started"
	EventSuspended EventKind = "suspended"
	EventResumed   EventKind = "resumed"
	EventShutdown  EventKind = "shutdown"
	EventCrashed   EventKind = "crashed"
	EventStopped   EventKind = "stopped"
	EventOther     EventKind = "other"
	// EventWatchdog: the guest stopped to reset its watchdog, whose action follows.
	EventWatchdog EventKind = "watchdog"
	// EventRebooted: the guest or a call reset the VM. One reset may send two events.
	EventRebooted EventKind = "rebooted"
	// The guest agent has opened or closed its port.
	EventAgentConnected    EventKind = "agent connected"
	EventAgentDisconnected EventKind = "agent disconnected"
	// EventResync belongs to no domain: events may be lost, and the subscriber must
	// read the states of all domains again. Each new connection to libvirtd,
	// including the first, sends one.
	EventResync EventKind = "resync"
)

// Event is a change in the life cycle of a domain.
type Event struct {
	UUID   string
	Kind   EventKind
	Reason Reason
}

// eventBuffer is how many unread events a subscriber may have.
const eventBuffer = 256

// Subscribe returns the events of all domains of this libvirtd, also those that
// are not nodevirt's, from now on, and a function that ends the subscription and
// closes the channel. A slow subscriber gets an [EventResync] in place of the
// events that it missed, and never blocks the driver.
func (c *Connection) Subscribe() (<-chan Event, func()) {
	return c.subscribers.add()
}

type subscribers struct {
	mu  sync.Mutex
	all map[chan Event]struct{}
}

func (s *subscribers) add() (<-chan Event, func()) {
	ch := make(chan Event, eventBuffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan Event]struct{}{}
	}
	s.all[ch] = struct{}{}
	return ch, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, ch)
		close(ch)
	})
}

func (s *subscribers) send(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.all {
		select {
		case ch <- e:
		default:
			overflow(ch)
		}
	}
}

// overflow replaces the events in ch by one resync. There is room for it because
// only the caller sends.
func overflow(ch chan Event) {
	for {
		select {
		case <-ch:
		default:
			ch <- Event{Kind: EventResync}
			return
		}
	}
}

func lifecycleCallback(send func(Event)) libvirt.DomainEventLifecycleCallback {
	return func(_ *libvirt.Connect, dom *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
		uuid, err := dom.GetUUIDString() // reads the handle, without a call
		if err != nil {
			send(Event{Kind: EventResync})
			return
		}
		kind, reason := eventOf(e.Event, e.Detail)
		send(Event{UUID: uuid, Kind: kind, Reason: reason})
	}
}

func rebootCallback(send func(Event)) libvirt.DomainEventGenericCallback {
	return func(_ *libvirt.Connect, dom *libvirt.Domain) {
		uuid, err := dom.GetUUIDString() // reads the handle, without a call
		if err != nil {
			send(Event{Kind: EventResync})
			return
		}
		send(Event{UUID: uuid, Kind: EventRebooted})
	}
}

func watchdogCallback(send func(Event)) libvirt.DomainEventWatchdogCallback {
	return func(_ *libvirt.Connect, dom *libvirt.Domain, _ *libvirt.DomainEventWatchdog) {
		uuid, err := dom.GetUUIDString() // reads the handle, without a call
		if err != nil {
			send(Event{Kind: EventResync})
			return
		}
		send(Event{UUID: uuid, Kind: EventWatchdog})
	}
}

func eventOf(code libvirt.DomainEventType, detail int) (EventKind, Reason) {
	switch code {
	case libvirt.DOMAIN_EVENT_DEFINED:
		return EventDefined, ReasonNone
	case libvirt.DOMAIN_EVENT_UNDEFINED:
		return EventUndefined, ReasonNone
	case libvirt.DOMAIN_EVENT_STARTED:
		return EventStarted, ReasonNone
	case libvirt.DOMAIN_EVENT_SUSPENDED:
		return EventSuspended, suspendedReason(libvirt.DomainEventSuspendedDetailType(detail))
	case libvirt.DOMAIN_EVENT_RESUMED:
		return EventResumed, ReasonNone
	case libvirt.DOMAIN_EVENT_SHUTDOWN:
		if libvirt.DomainEventShutdownDetailType(detail) == libvirt.DOMAIN_EVENT_SHUTDOWN_HOST {
			return EventShutdown, ReasonDestroyed
		}
		return EventShutdown, ReasonShutdown
	case libvirt.DOMAIN_EVENT_CRASHED:
		return EventCrashed, ReasonCrashed
	case libvirt.DOMAIN_EVENT_STOPPED:
		return EventStopped, stoppedReason(libvirt.DomainEventStoppedDetailType(detail))
	default:
		return EventOther, ReasonNone
	}
}
