// Package nodeproblems collects what is wrong with a node as a whole, and what its administrator must do, so that the
// node's condition, its metric and nodevirt doctor say the same.
//
// It owns the problems' names. It leaves finding them to the parts that notice them.
package nodeproblems

import (
	"cmp"
	"slices"
	"sync"
)

// Info is the name of the problems, as JSON, in the verbose status of the runtime, which "crictl info" shows.
const Info = "nodevirtProblems"

// Reason names a kind of problem, in the form of a condition's reason.
type Reason string

// The kinds.
const (
	// PodsLost: containerd knows none of the VMs' pods from before, and the VMs run on.
	PodsLost Reason = "PodsLost"
	// NoRoomForLibvirtd: a libvirtd that starts could not write the state of the guests that run, and would kill them.
	NoRoomForLibvirtd Reason = "NoRoomForLibvirtd"
)

// Reasons returns all kinds.
func Reasons() []Reason { return []Reason{NoRoomForLibvirtd, PodsLost} }

// Problem is what is wrong. Message says what to do.
type Problem struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// Problems are those of one node. Their methods may be called concurrently.
type Problems struct {
	mu       sync.Mutex
	messages map[Reason]string
}

// Set notes a problem, or the end of it, with a nil error.
func (p *Problems) Set(r Reason, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.messages, r)
		return
	}
	if p.messages == nil {
		p.messages = map[Reason]string{}
	}
	p.messages[r] = err.Error()
}

// All returns the problems, sorted by reason.
func (p *Problems) All() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Problem, 0, len(p.messages))
	for r, message := range p.messages {
		all = append(all, Problem{r, message})
	}
	slices.SortFunc(all, func(a, b Problem) int { return cmp.Compare(a.Reason, b.Reason) })
	return all
}
