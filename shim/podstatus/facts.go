package podstatus

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Pod identifies a pod whose status is written.
type Pod struct {
	Namespace, Name string
	UID             string
	// Attempt is that of the sandbox: facts of an older sandbox of the same pod are stale.
	Attempt uint32
}

// Facts are the state of a pod's VM.
type Facts struct {
	// Ready is true while the guest runs. Reason says why it does or does not, Message what failed.
	Ready           bool
	Reason, Message string
	// Event says that the reason and the message are an event of the pod, too.
	Event bool
	// Since is when Ready changed; the time of the write if zero.
	Since time.Time
	// Credentials are nil for a VM whose agent sets no keys and passwords, and if not known.
	Credentials *Credentials
	// Identity is nil for a VM whose guest is no fork.
	Identity *Identity
	// VSOCK is true for a VM with a VSOCK.
	VSOCK bool
	// Machine is nil unless the domain exists: before the start and after the end.
	Machine *Machine
}

// Machine is the state of a VM that runs or is paused.
type Machine struct {
	// Paused is why the guest is paused, empty while it runs.
	Paused string
	// Movable is true if the VM can migrate to another node while it runs. Otherwise Stays
	// says why not; empty means that the node migrates no VM.
	Movable bool
	Stays   string
	// Agent says whether the guest agent is connected; nil if that is not known.
	Agent *bool
	// Type is the type of the VM's board, such as pc-q35-7.2; empty if that is not known.
	Type string
	// VSOCKCID is the address of the VM's VSOCK, 0 for none.
	VSOCKCID uint32
	// Guest is what the agent reported, nil if it did not.
	Guest *condition.Guest
}

// Credentials say whether the guest has the keys and passwords that its agent sets.
type Credentials struct {
	// Reason is one of AccessCredentialsSynchronized, Message what failed.
	Reason, Message string
}

// Identity says whether a fork's guest has renewed its identity.
type Identity struct {
	// Reason is one of IdentityRenewed, Message why the guest has not renewed it.
	Reason, Message string
}

// Condition is a condition of a pod. Unlike the API's type it encodes empty fields,
// since a patch without a message would keep the old one.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// same reports whether two conditions are equal except for their transition times.
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

// conditions converts facts to conditions. After the end of the VM all are False.
func (f Facts) conditions(now time.Time) []Condition {
	since := f.Since
	if since.IsZero() {
		since = now
	}
	all := []Condition{made(condition.VMReady, f.Ready, f.Reason, clip(f.Message, maxMessage), since)}
	if c := f.Credentials; c != nil {
		all = append(all, made(condition.AccessCredentialsSynchronized, c.Reason == condition.ReasonSynchronized,
			c.Reason, clip(c.Message, maxMessage), now))
	}
	if i := f.Identity; i != nil {
		all = append(all, made(condition.IdentityRenewed, i.Reason == condition.ReasonRenewed, i.Reason, clip(i.Message, maxMessage), since))
	}
	if f.VSOCK {
		all = append(all, f.vsock(now))
	}
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
	movable, stays := condition.ReasonMigrationUnsupported, clip(cmp.Or(m.Stays, migrationUnsupported), maxMessage)
	if m.Movable {
		movable, stays = condition.ReasonMigratable, ""
	}
	all = append(all,
		made(condition.Paused, m.Paused != "", paused, pausedMessage(f), now),
		made(condition.LiveMigratable, m.Movable, movable, stays, since))
	if m.Type != "" {
		all = append(all, made(condition.MachineType, true, condition.ReasonResolved, clip(m.Type, maxMessage), since))
	}
	switch {
	case m.Agent == nil:
	case *m.Agent:
		all = append(all, made(condition.AgentConnected, true, condition.ReasonAgentConnected, "", now))
		if m.Guest != nil {
			all = append(all, made(condition.GuestInfo, true, condition.ReasonAgentReported, guestMessage(*m.Guest), now))
		}
	default:
		all = append(all,
			made(condition.AgentConnected, false, condition.ReasonAgentDisconnected, "", now),
			made(condition.GuestInfo, false, condition.ReasonAgentDisconnected, "", now))
	}
	return all
}

// vsock says which CID the VM has.
func (f Facts) vsock(now time.Time) Condition {
	if f.Machine == nil {
		return made(condition.VSOCK, false, condition.ReasonCIDReleased, "", now)
	}
	return made(condition.VSOCK, true, condition.ReasonCIDAssigned, strconv.FormatUint(uint64(f.Machine.VSOCKCID), 10), now)
}

// pausedMessage says what to do about a paused guest, if its reason does not.
func pausedMessage(f Facts) string {
	if f.Machine.Paused == "" {
		return ""
	}
	return clip(f.Message, maxMessage)
}

func made(kind string, status bool, reason, message string, since time.Time) Condition {
	c := Condition{Type: kind, Status: statusFalse, Reason: reason, Message: message,
		LastTransitionTime: since.UTC().Truncate(time.Second)} // as the API keeps it
	if status {
		c.Status = statusTrue
	}
	return c
}

// Bounds of what a guest or an error can add to a pod's status, in bytes.
const (
	maxMessage = 2 << 10
	maxGuest   = 4 << 10
)

// guestMessage encodes what the agent reported as JSON, with as many addresses as fit: the interface with the most
// addresses loses its last one first, and an interface goes only when none has any. Package agent bounds each text in it.
func guestMessage(g condition.Guest) string {
	g.Interfaces = slices.Clone(g.Interfaces)
	for {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // an escape takes six bytes
		_ = e.Encode(g)        // encoding strings cannot fail
		if text.Len() <= maxGuest || len(g.Interfaces) == 0 {
			return strings.TrimSpace(text.String())
		}
		for left := text.Len() - maxGuest; left > 0 && len(g.Interfaces) > 0; {
			left -= shorten(&g)
		}
	}
}

// shorten removes an address or, if there is none, an interface, and returns how many bytes that saves at least.
func shorten(g *condition.Guest) int {
	most := 0
	for i, one := range g.Interfaces {
		if len(one.IPs) > len(g.Interfaces[most].IPs) {
			most = i
		}
	}
	one := &g.Interfaces[most]
	if last := len(one.IPs) - 1; last >= 0 {
		saved := len(one.IPs[last]) + len(`"",`)
		one.IPs = one.IPs[:last]
		return saved
	}
	last := g.Interfaces[len(g.Interfaces)-1]
	g.Interfaces = g.Interfaces[:len(g.Interfaces)-1]
	return len(last.Name) + len(last.MAC)
}

// clip shortens a text to most bytes, without splitting a character.
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
