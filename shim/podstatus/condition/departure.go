package condition

import (
	"fmt"
	"regexp"
)

// Departure is where a migration has taken the guest of a pod. The message of the pod's end has it, with the reason
// [ReasonMigrated] or [ReasonHandedOver], so that it outlives the migration's own object.
type Departure struct {
	// Node is the name of the target's node; empty if the order did not name it.
	Node string
	// Migration is the UID of the migration's object.
	Migration string
	// Unanswered means that the target has not answered: the guest may run there.
	Unanswered bool
}

// Message returns the message of the pod's end.
func (d Departure) Message() string {
	node := "another node"
	if d.Node != "" {
		node = "node " + d.Node
	}
	if d.Unanswered {
		return fmt.Sprintf("the guest was handed over to %s (migration %s), which has not answered: it may run there", node, d.Migration)
	}
	return fmt.Sprintf("the guest runs on %s (migration %s)", node, d.Migration)
}

// ParseDeparture reads the reason and the message of a pod's end. A message of an earlier version names nothing. ok is
// false for the end of a guest that has not gone.
func ParseDeparture(reason, message string) (d Departure, ok bool) {
	if reason != ReasonMigrated && reason != ReasonHandedOver {
		return d, false
	}
	parts := regexp.MustCompile(`(?:another node|node ([a-z0-9.-]{1,253})) \(migration ([0-9A-Za-z-]{1,64})\)`).FindStringSubmatch(message)
	if parts != nil {
		d.Node, d.Migration = parts[1], parts[2]
	}
	d.Unanswered = reason == ReasonHandedOver
	return d, true
}
