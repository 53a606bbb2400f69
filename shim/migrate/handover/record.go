package handover

import (
	"fmt"
	"strings"
	"sync"
)

// State is a node's decision about a migration.
type State string

// The source's states.
const (
	// Sending means that the source runs the guest, and may have a job of libvirt's.
	Sending State = "sending"
	// HandedOver means that the guest is stopped, and the target may have it.
	HandedOver State = "handed-over"
	// Left means that the target has the guest.
	Left State = "left"
	// Kept means that the source has the guest.
	Kept State = "kept"
)

// The target's states.
const (
	// Incoming means that the target has not decided.
	Incoming State = "incoming"
	// Taken means that the target has the guest, and may have resumed it.
	Taken State = "taken"
	// Refused means that the target never runs the guest.
	Refused State = "refused"
)

// version is the version of records and of messages.
const version = 1

// Record is what a node knows of a migration of one VM.
type Record struct {
	Version int `json:"version"`
	// Migration is the migration's UID. No two migrations have the same.
	Migration string `json:"migration"`
	// VM is the UUID of the VM's domain, the same on both nodes.
	VM    string `json:"vm"`
	State State  `json:"state"`
	// Reason says why the source kept or the target refused the guest.
	Reason string `json:"reason,omitempty"`
	// Ended means that the node has carried out its decision.
	Ended bool `json:"ended,omitempty"`
	// Peer is the name of the target's node in a source's record, for messages; empty if the order did not name it.
	Peer string `json:"peer,omitempty"`
}

// MayResume reports whether the node may resume the VM's guest, for a user or after
// an error. The migration itself resumes a guest that it paused.
func (r Record) MayResume() bool { return r.State == Kept || r.State == Taken }

// Here reports whether the node has the VM's guest, running or paused: its copy elsewhere never ran.
func (r Record) Here() bool { return r.State == Sending || r.MayResume() }

// check returns an error if the record is not one of this program's.
func (r Record) check() error {
	if r.Version != version {
		return fmt.Errorf("record of migration %s has version %d, this program reads version %d", r.Migration, r.Version, version)
	}
	switch r.State {
	case Sending, HandedOver, Left, Kept, Incoming, Taken, Refused:
	default:
		return fmt.Errorf("record of migration %s has the unknown state %q", r.Migration, r.State)
	}
	if r.Migration == "" || r.VM == "" {
		return fmt.Errorf("record %+v names no migration or no VM", r)
	}
	return nil
}

// records stores a node's record of one migration.
type records interface {
	// Put replaces the record. It returns without an error only if the record
	// survives a power failure. After an error, the old record or the new one is there.
	Put(Record) error
}

// ledger is a record that changes only if it was written. It can be read at any time,
// also while a call to libvirt hangs.
type ledger struct {
	records records

	mu  sync.Mutex
	rec Record
}

// Record returns the record as it was last written.
func (l *ledger) Record() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec
}

// put writes a decision.
func (l *ledger) put(state State, reason string) error {
	r := l.Record()
	r.State, r.Reason = state, bounded(reason)
	return l.write(r)
}

// end writes that the decision is carried out.
func (l *ledger) end() error {
	r := l.Record()
	r.Ended = true
	return l.write(r)
}

func (l *ledger) write(r Record) error {
	if err := l.records.Put(r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rec = r
	return nil
}

// about fills in what all messages about the record have.
func (r Record) about(m message) message {
	m.Version, m.Migration, m.VM = r.Version, r.Migration, r.VM
	return m
}

// matches returns an error for a message about another migration, or of another version.
func (r Record) matches(m message) error {
	switch {
	case m.Version != r.Version:
		return fmt.Errorf("%w: version %d, this program speaks version %d", errProtocol, m.Version, r.Version)
	case m.Migration != r.Migration || m.VM != r.VM:
		return fmt.Errorf("%w: a message about another VM", errProtocol)
	}
	return nil
}

// maxReason bounds a reason, which can be the peer's, in bytes.
const maxReason = 1024

func bounded(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return strings.ToValidUTF8(reason, "?")
}
