package domain

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// EventKind is what happened to a domain.
type EventKind string

// The kinds of events. Every end gives Stopped. Before it comes Shutdown where
// the guest powered off (ReasonShutdown) or QEMU was asked to end by a signal
// (ReasonDestroyed; mostly by libvirtd itself, within [Driver.Destroy]), and
// Crashed where the guest panicked.
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
	// EventRebooted: the machine was reset, by the guest or from outside. One reset may give two.
	EventRebooted EventKind = "rebooted"
	// The guest's agent has opened its port, or left it.
	EventAgentConnected    EventKind = "agent connected"
	EventAgentDisconnected EventKind = "agent disconnected"
	// EventResync belongs to no domain: events may have been missed, and the
	// states of all domains have to be read again. One comes with each new
	// connection to libvirtd, the first included.
	EventResync EventKind = "resync"
)

// Event tells of a change in a domain's life.
type Event struct {
	UUID   string
	Kind   EventKind
	Reason Reason
}

// eventBuffer is how many events a subscriber can be behind.
const eventBuffer = 256

// Subscribe returns the events of all domains of this libvirtd, foreign ones
// included, from now on, and a function that ends the subscription and closes
// the channel. A subscriber that falls behind gets an [EventResync] in place
// of what it missed; it never holds up the driver.
func (d *Driver) Subscribe() (<-chan Event, func()) {
	return d.subscribers.add()
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

// overflow replaces all that ch holds by one resync, for which there is room
// since nobody else sends.
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
		uuid, err := dom.GetUUIDString() // reads the handle, asks nobody
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
		uuid, err := dom.GetUUIDString() // reads the handle, asks nobody
		if err != nil {
			send(Event{Kind: EventResync})
			return
		}
		send(Event{UUID: uuid, Kind: EventRebooted})
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
