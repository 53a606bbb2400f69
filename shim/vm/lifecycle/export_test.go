package lifecycle

import "github.com/nodevirt/nodevirt/shim/record"

// Phase is a phase of a start, and those that it comes after.
type Phase struct {
	Name  string
	After []string
}

// Phases returns the phases of the start of a guest that boots.
func Phases() []Phase {
	var all []Phase
	for _, p := range phases() {
		if p.name == record.PhaseIdentity {
			continue
		}
		all = append(all, Phase{p.name, p.after})
	}
	return all
}
