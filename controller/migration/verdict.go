package migration

import (
	"slices"

	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// end is what is known of one end of a migration.
type end struct {
	instances.State
	// report is the node's; nil if it gave no answer.
	report *order.Report
}

// is reports whether the node answered with one of some states.
func (e end) is(states ...string) bool {
	return e.report != nil && slices.Contains(states, e.report.State)
}

// verdict is what to do about a migration whose orders are given.
type verdict int

const (
	// await: ask again later.
	await verdict = iota
	// unsettled: ask again later; no node runs the guest meanwhile.
	unsettled
	// succeed: the target has the guest.
	succeed
	// failed: the source has the guest, or no node will have it again.
	failed
	// undo: cancel the migration at both ends, and ask again.
	undo
	// resume: the target never runs the guest, so the source may.
	resume
)

// decide returns what to do. Undone says that the migration must not go on.
//
// Only the target's word moves the guest. If neither end can run it again, the source's
// word that it has gone is enough. A source resumes only if the target durably
// refused, or is on a node that is gone. A source that has kept its guest never hands it over: a target that gives no
// answer is not waited for. A target that has ended gives no answer any more:
// the reason of its container's end is its word.
func decide(source, target end, undone bool) verdict {
	// Never is true if the target never takes the guest from now on.
	never := target.is(stateRefused) || target.is(stateUnknown) && undone || target.Vacant || target.Refused
	switch {
	case target.is(stateTaken):
		return succeed
	case target.Ended && (source.is(stateLeft) || source.Migrated):
		return succeed // the target's end is the guest's
	case never && (source.is(stateKept, stateUnknown) || source.Ended):
		return failed
	case never && source.is(stateHandedOver):
		return resume
	case target.Had && source.is(stateHandedOver):
		return succeed
	case target.Ended && (source.is(stateKept, stateUnknown) || source.Ended):
		return failed
	case source.is(stateKept) && target.report == nil && undone:
		return failed
	case source.is(stateHandedOver) && source.report.Unsettled && target.is(stateIncoming):
		return undo // they do not reach each other: the target's refusal settles it
	case source.is(stateHandedOver) && source.report.Unsettled:
		return unsettled
	case source.is(stateKept, stateUnknown), target.is(stateUnknown), source.Ended, target.Ended, never, undone:
		return undo
	}
	return await
}
