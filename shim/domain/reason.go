package domain

import "libvirt.org/go/libvirt"

// Reason is the reason of a domain's state or of an event. Both have the same set,
// with one difference in libvirt: if QEMU ended by itself or was killed, the event
// has the reason failed and the state crashed.
type Reason string

// The reasons.
const (
	ReasonNone Reason = ""
	// ReasonShutdown: the guest powered off.
	ReasonShutdown Reason = "shutdown"
	// ReasonDestroyed: the domain was destroyed from outside the guest.
	ReasonDestroyed Reason = "destroyed"
	// ReasonCrashed: the guest panicked; as a state's reason also that QEMU died.
	ReasonCrashed Reason = "crashed"
	// ReasonFailed: QEMU did not start, or died.
	ReasonFailed Reason = "failed"
	// ReasonDaemon: libvirtd could not connect to a running domain at its start:
	// QEMU ended while libvirtd did not run.
	ReasonDaemon Reason = "daemon"
	// ReasonMigrated and ReasonSaved: the guest continues on another node or later.
	ReasonMigrated Reason = "migrated"
	ReasonSaved    Reason = "saved"
	// ReasonUser: paused by request, as every domain is after its start.
	ReasonUser Reason = "user"
	// ReasonIOError: paused by a disk error, mostly because the node's disk is full.
	ReasonIOError Reason = "ioerror"
	// ReasonStarting: libvirtd is starting the domain.
	ReasonStarting Reason = "starting"
	// ReasonNeverRan: defined and not started since.
	ReasonNeverRan Reason = "never-ran"
	ReasonOther    Reason = "other"
)

// orOther looks up a code. Newer versions of libvirt may have other codes.
func orOther[K comparable](m map[K]Reason, code K) Reason {
	if r, ok := m[code]; ok {
		return r
	}
	return ReasonOther
}

func shutoffReason(code libvirt.DomainShutoffReason) Reason {
	return orOther(map[libvirt.DomainShutoffReason]Reason{
		libvirt.DOMAIN_SHUTOFF_UNKNOWN:   ReasonNeverRan,
		libvirt.DOMAIN_SHUTOFF_SHUTDOWN:  ReasonShutdown,
		libvirt.DOMAIN_SHUTOFF_DESTROYED: ReasonDestroyed,
		libvirt.DOMAIN_SHUTOFF_CRASHED:   ReasonCrashed,
		libvirt.DOMAIN_SHUTOFF_MIGRATED:  ReasonMigrated,
		libvirt.DOMAIN_SHUTOFF_SAVED:     ReasonSaved,
		libvirt.DOMAIN_SHUTOFF_FAILED:    ReasonFailed,
		libvirt.DOMAIN_SHUTOFF_DAEMON:    ReasonDaemon,
	}, code)
}

func pausedReason(code libvirt.DomainPausedReason) Reason {
	return orOther(map[libvirt.DomainPausedReason]Reason{
		libvirt.DOMAIN_PAUSED_USER:          ReasonUser,
		libvirt.DOMAIN_PAUSED_MIGRATION:     ReasonMigrated,
		libvirt.DOMAIN_PAUSED_SAVE:          ReasonSaved,
		libvirt.DOMAIN_PAUSED_IOERROR:       ReasonIOError,
		libvirt.DOMAIN_PAUSED_SHUTTING_DOWN: ReasonShutdown,
		libvirt.DOMAIN_PAUSED_CRASHED:       ReasonCrashed,
		libvirt.DOMAIN_PAUSED_STARTING_UP:   ReasonStarting,
	}, code)
}

func stoppedReason(code libvirt.DomainEventStoppedDetailType) Reason {
	return orOther(map[libvirt.DomainEventStoppedDetailType]Reason{
		libvirt.DOMAIN_EVENT_STOPPED_SHUTDOWN:  ReasonShutdown,
		libvirt.DOMAIN_EVENT_STOPPED_DESTROYED: ReasonDestroyed,
		libvirt.DOMAIN_EVENT_STOPPED_CRASHED:   ReasonCrashed,
		libvirt.DOMAIN_EVENT_STOPPED_MIGRATED:  ReasonMigrated,
		libvirt.DOMAIN_EVENT_STOPPED_SAVED:     ReasonSaved,
		libvirt.DOMAIN_EVENT_STOPPED_FAILED:    ReasonFailed,
	}, code)
}

func suspendedReason(code libvirt.DomainEventSuspendedDetailType) Reason {
	return orOther(map[libvirt.DomainEventSuspendedDetailType]Reason{
		libvirt.DOMAIN_EVENT_SUSPENDED_PAUSED:   ReasonUser,
		libvirt.DOMAIN_EVENT_SUSPENDED_MIGRATED: ReasonMigrated,
		libvirt.DOMAIN_EVENT_SUSPENDED_IOERROR:  ReasonIOError,
	}, code)
}
