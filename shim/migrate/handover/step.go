package handover

import "time"

// Step is a point of a migration that a node has reached. Callers log steps and
// report them as the migration's phase; tests stop a node there.
type Step string

// The source's steps, in the order of a migration without faults, and then those of a
// migration that fails.
const (
	StepConnected   Step = "source: connected"
	StepDefined     Step = "source: target defined the domain"
	StepBegun       Step = "source: libvirt began"
	StepPrepared    Step = "source: target prepared"
	StepPerformed   Step = "source: guest stopped and copied"
	StepHandedOver  Step = "source: handed-over written"
	StepAnswered    Step = "source: target answered"
	StepUnanswered  Step = "source: no answer"
	StepLeft        Step = "source: left written"
	StepKept        Step = "source: kept written"
	StepSourceEnded Step = "source: ended"
)

// The target's steps.
const (
	StepDefining    Step = "target: has a shape"
	StepPreparing   Step = "target: has libvirt's beginning"
	StepReady       Step = "target: prepared"
	StepReceived    Step = "target: has the hand-over"
	StepFinished    Step = "target: libvirt finished"
	StepTaken       Step = "target: taken written"
	StepResumed     Step = "target: guest resumed"
	StepRefused     Step = "target: refused written"
	StepTargetEnded Step = "target: ended"
)

// Limits are the times that a node waits.
type Limits struct {
	// Answer bounds the peer's answer to a message.
	Answer time.Duration
	// Alive is the time between two messages of the source while memory is copied.
	Alive time.Duration
	// Silence is the time without a message after which a target refuses.
	Silence time.Duration
	// Local bounds each call to the node's own libvirt, but Perform.
	Local time.Duration
	// Ask is the pause between two questions for the outcome.
	Ask time.Duration
}

// DefaultLimits returns the limits of a node. libvirt's Prepare, which starts QEMU,
// takes under a second; a node under load needs much longer.
func DefaultLimits() Limits {
	return Limits{
		Answer: 90 * time.Second, Alive: 5 * time.Second, Silence: 2 * time.Minute, Local: time.Minute, Ask: time.Second,
	}
}
