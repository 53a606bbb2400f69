package domain

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"libvirt.org/go/libvirt"
)

// Status says whether a domain runs.
type Status string

// The states of a domain.
const (
	StatusRunning Status = "running"
	StatusPaused  Status = "paused"  // QEMU runs, guest code doesn't
	StatusShutoff Status = "shutoff" // QEMU doesn't run
)

// State is the state of a domain, from libvirtd.
type State struct {
	Status Status
	// Reason is the reason of the status.
	Reason Reason
	// PID is QEMU's process id. It is 0 if the status is shutoff, if QEMU ended
	// during the call, or if it can't be identified.
	PID int
}

// Observer reads what libvirtd knows of domains.
type Observer struct {
	conn      *Connection
	processes *Processes
	log       *slog.Logger
	stats     chan struct{} // holds the running calls of Stats
}

// State returns a domain's state.
func (o *Observer) State(ctx context.Context, uuid string) (State, error) {
	type answer struct {
		name  string
		state State
	}
	a, err := onDomain(ctx, o.conn, "get state of", uuid, func(dom *libvirt.Domain) (answer, error) {
		code, detail, err := dom.GetState()
		if err != nil {
			return answer{}, err
		}
		name, err := dom.GetName()
		return answer{name, stateOf(code, detail)}, err
	})
	if err != nil || a.state.Status == StatusShutoff {
		return a.state, err
	}
	// A guest can make this fail, but must not make State fail.
	pid, err := o.processes.pid(a.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.log.Warn("can't find QEMU's process id", "error", err)
	}
	a.state.PID = pid
	return a.state, nil
}

// MachineType returns the type of a domain's board, such as pc-q35-7.2: libvirt has replaced an alias.
func (o *Observer) MachineType(ctx context.Context, uuid string) (string, error) {
	return onDomain(ctx, o.conn, "read the machine type of", uuid, func(dom *libvirt.Domain) (string, error) {
		text, err := dom.GetXMLDesc(0)
		if err != nil {
			return "", err
		}
		return MachineTypeIn(text)
	})
}

// MachineTypeIn returns the type of the board in a domain's XML.
func MachineTypeIn(text string) (string, error) {
	var x struct {
		Type struct {
			Machine string `xml:"machine,attr"`
		} `xml:"os>type"`
	}
	if err := xml.Unmarshal([]byte(text), &x); err != nil {
		return "", fmt.Errorf("decode the domain: %w", err)
	}
	return x.Type.Machine, nil
}

// stateOf maps virDomainState and its reason. A domain in an intermediate state
// (being shut down, crashed but kept) counts as paused: it holds its resources,
// and its guest doesn't run.
func stateOf(code libvirt.DomainState, detail int) State {
	switch code {
	case libvirt.DOMAIN_RUNNING, libvirt.DOMAIN_BLOCKED:
		return State{Status: StatusRunning, Reason: ReasonNone}
	case libvirt.DOMAIN_SHUTOFF:
		return State{Status: StatusShutoff, Reason: shutoffReason(libvirt.DomainShutoffReason(detail))}
	case libvirt.DOMAIN_PAUSED:
		return State{Status: StatusPaused, Reason: pausedReason(libvirt.DomainPausedReason(detail))}
	case libvirt.DOMAIN_SHUTDOWN:
		return State{Status: StatusPaused, Reason: ReasonShutdown}
	case libvirt.DOMAIN_CRASHED:
		return State{Status: StatusPaused, Reason: ReasonCrashed}
	default:
		return State{Status: StatusPaused, Reason: ReasonOther}
	}
}
