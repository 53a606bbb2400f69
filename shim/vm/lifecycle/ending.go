package lifecycle

import (
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// ending is the end of a guest in CRI's words: those that containerd has for a process.
type ending struct {
	code            int32
	reason, message string
}

const (
	reasonCompleted  = condition.ReasonCompleted
	reasonError      = condition.ReasonError
	reasonPanicked   = condition.ReasonGuestPanicked
	reasonOOMKilled  = condition.ReasonOOMKilled
	reasonMigrated   = condition.ReasonMigrated
	reasonHandedOver = condition.ReasonHandedOver
	reasonSuspended  = condition.ReasonSuspended
	reasonRefused    = condition.ReasonMigrationRefused
	reasonShutdown   = condition.ReasonNodeShutdown

	codeKilled  = 128 + 9  // of a process that SIGKILL ended
	codeAborted = 128 + 6  // of a process that gave up by itself
	codeStopped = 128 + 15 // of a process that SIGTERM ended
	codeRefused = 1        // of a container whose guest did not come
)

// departed is the end of a container whose guest a migration has taken, or may have. It is no power-off, even
// if the kubelet has ended what is left of the guest here.
func departed(d condition.Departure) ending {
	if d.Unanswered {
		return ending{codeKilled, reasonHandedOver, d.Message()}
	}
	return ending{0, reasonMigrated, d.Message()}
}

// endingOf translates libvirt's reason for the end of a domain. unserved says that the shim
// stopped it for want of a file system; oomKilled, panicked and unwatched are asked only
// where libvirt does not know the reason. A guest that powers off while its node shuts down was
// asked to: its end must not look like its owner's wish, or the controller would not start it again.
func endingOf(reason domain.Reason, name string, oomKilled, unserved, panicked, unwatched, nodeStops func() bool) ending {
	switch {
	case unserved() && oomKilled():
		return ending{codeKilled, reasonOOMKilled,
			"virtiofsd needed more memory than the container's limit and the pod's overhead allow, and the VM was stopped"}
	case unserved():
		return ending{codeKilled, reasonError, "virtiofsd ended unexpectedly, and the VM was stopped: its guest would wait for the file system forever"}
	case reason == domain.ReasonShutdown && nodeStops():
		return ending{codeStopped, reasonShutdown, "the guest powered off because its node shut down"}
	case reason == domain.ReasonShutdown:
		return ending{0, reasonCompleted, ""}
	case reason == domain.ReasonDestroyed:
		return ending{codeKilled, reasonError, "the VM was powered off"}
	}
	if oomKilled() {
		return ending{codeKilled, reasonOOMKilled,
			"QEMU needed more memory than the container's limit and the pod's overhead allow"}
	}
	if panicked() {
		return ending{codeAborted, reasonPanicked, "the guest's kernel panicked"}
	}
	if unwatched() {
		return ending{codeKilled, reasonError, "the guest's watchdog expired, and powered the VM off"}
	}
	if nodeStops() {
		return ending{codeKilled, reasonShutdown, "the VM was ended because its node shut down"}
	}
	return unexpected(name)
}

// unexpected is an end of which nothing says more.
func unexpected(name string) ending {
	return ending{codeKilled, reasonError, "QEMU ended unexpectedly: see libvirt's log of domain " + name}
}

// endedWithNode is that of a guest that ran when its node lost power, was reset or reinstalled.
func endedWithNode() ending {
	return ending{codeKilled, reasonShutdown, "the node restarted without shutting the VM down"}
}
