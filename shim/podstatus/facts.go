package podstatus

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Pod is whose status is written.
type Pod struct {
	Namespace, Name string
	UID             string
	// Attempt is the sandbox's: facts of an older sandbox of the same pod are stale.
	Attempt uint32
}

// Facts are all that is known of a pod's VM.
type Facts struct {
	// Ready says that the guest runs; Reason why it does or does not, Message what failed.
	Ready           bool
	Reason, Message string
	// Since is when that became so; the time of the write if zero.
	Since time.Time
	// Machine is nil where no machine stands: it was not started, or has ended.
	Machine *Machine
}

// Machine are the facts of a machine that runs or is paused.
type Machine struct {
	// Paused is the reason why the guest stands still, empty where it doesn't.
	Paused string
	// Agent is nil where it is not known whether the guest's agent is there.
	Agent *bool
	// Guest is what the agent told, nil where it did not.
	Guest *condition.Guest
}

// Condition is a condition of a pod. Unlike the API's type it writes its empty
// fields: a patch that left a message out would keep the old one.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// same tells whether two conditions say the same, whenever they became so.
func (c Condition) same(o Condition) bool {
	c.LastTransitionTime = o.LastTransitionTime
	return c == o
}

const (
	statusTrue  = "True"
	statusFalse = "False"
)

// migrationUnsupported is LiveMigratable's message.
const migrationUnsupported = "this nodevirt does not move VMs between nodes while they run"

// conditions are what a pod's status says of facts. Of a machine that ended
// nothing is true any more.
func (f Facts) conditions(now time.Time) []Condition {
	since := f.Since
	if since.IsZero() {
		since = now
	}
	all := []Condition{made(condition.VMReady, f.Ready, f.Reason, clip(f.Message, maxMessage), since)}
	if f.Machine == nil {
		return append(all,
			made(condition.Paused, false, condition.ReasonNotPaused, "", now),
			made(condition.AgentConnected, false, condition.ReasonAgentDisconnected, "", now),
			made(condition.GuestInfo, false, condition.ReasonAgentDisconnected, "", now))
	}
	m := f.Machine
	paused := m.Paused
	if paused == "" {
		paused = condition.ReasonNotPaused
	}
	all = append(all,
		made(condition.Paused, m.Paused != "", paused, "", now),
		made(condition.LiveMigratable, false, condition.ReasonMigrationUnsupported, migrationUnsupported, since))
	switch {
	case m.Agent == nil:
	case *m.Agent:
		all = append(all, made(condition.AgentConnected, true, condition.ReasonAgentConnected, "", now))
		if m.Guest != nil {
			all = append(all, made(condition.GuestInfo, true, condition.ReasonAgentTold, guestMessage(*m.Guest), now))
		}
	default:
		all = append(all,
			made(condition.AgentConnected, false, condition.ReasonAgentDisconnected, "", now),
			made(condition.GuestInfo, false, condition.ReasonAgentDisconnected, "", now))
	}
	return all
}

func made(kind string, status bool, reason, message string, since time.Time) Condition {
	c := Condition{Type: kind, Status: statusFalse, Reason: reason, Message: message,
		LastTransitionTime: since.UTC().Truncate(time.Second)} // as the API keeps it
	if status {
		c.Status = statusTrue
	}
	return c
}

// Bounds of what one guest, or one error, can put into the API server, in bytes.
const (
	maxMessage = 2 << 10
	maxGuest   = 4 << 10
)

// guestMessage is what the agent told as JSON; of many addresses those that fit.
// Package agent bounds each of its texts.
func guestMessage(g condition.Guest) string {
	for {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // an escape is six times as long
		_ = e.Encode(g)        // strings can always be written
		if text.Len() <= maxGuest || len(g.Interfaces) == 0 {
			return strings.TrimSpace(text.String())
		}
		g.Interfaces = g.Interfaces[:len(g.Interfaces)-1]
	}
}

// clip cuts a text, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	most -= len("…")
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}
