package criwalk

import (
	"fmt"
	"slices"
	"strings"
)

// protocol is what a golden file has of a walk: each answer in which the two differ, and each error.
// Calls with the same answers stand together.
type protocol struct {
	answers []string // in the order in which they were first given
	calls   map[string][]string
}

func (p *protocol) note(call string, machine, process answer) {
	text := differences(machine, process)
	if text == "" {
		return
	}
	if p.calls == nil {
		p.calls = map[string][]string{}
	}
	if _, known := p.calls[text]; !known {
		p.answers = append(p.answers, text)
	}
	p.calls[text] = append(p.calls[text], call)
}

// String is the golden file's text.
func (p *protocol) String() string {
	var b strings.Builder
	for _, a := range p.answers {
		fmt.Fprintf(&b, "%s\n\t%s\n\n", strings.Join(p.calls[a], "\n"), strings.ReplaceAll(a, "\n", "\n\t"))
	}
	return b.String()
}

// differences are what only one of two answers has, and all of an error.
func differences(machine, process answer) string {
	if machine.code != "OK" && machine.equal(process) {
		return "both: " + machine.code + ": " + strings.Join(machine.lines, "\n")
	}
	var lines []string
	if machine.code != process.code {
		lines = append(lines, "ordinary: "+process.code, "VM: "+machine.code)
	}
	for _, l := range process.lines {
		if !slices.Contains(machine.lines, l) {
			lines = append(lines, "ordinary: "+l)
		}
	}
	for _, l := range machine.lines {
		if !slices.Contains(process.lines, l) {
			lines = append(lines, "VM: "+l)
		}
	}
	return strings.Join(lines, "\n")
}
