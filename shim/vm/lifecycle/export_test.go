package lifecycle

// Phase is a phase of a start, and those that it comes after.
type Phase struct {
	Name  string
	After []string
}

// Phases returns the phases of a start.
func Phases() []Phase {
	var all []Phase
	for _, p := range phases() {
		all = append(all, Phase{p.name, p.after})
	}
	return all
}
