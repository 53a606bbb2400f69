// Package specs reads how the specs of a stranger's suite ended, and compares that with a file.
//
// It owns the reports of ginkgo and the files of outcomes; the suites are the callers'.
package specs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The states of specs. Ginkgo has several words for a failure; here it is one.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Spec names a spec: its file below the suite's folder, and its words.
type Spec struct{ File, Text string }

// Outcome is how a spec ended.
type Outcome struct {
	State  string // Passed, Failed or Skipped
	Set    string // the set, such as conformance, that the spec belongs to; empty for none
	Reason string // why it does not pass, for a reader who wants to check it; empty if it passes
}

// Outcomes are those of a run, or of all specs that a file knows.
type Outcomes map[Spec]Outcome

// unexplained begins a reason that the run gave, and no person.
const unexplained = "not looked into: "

// header is the file's first line.
const header = "file\tset\toutcome\tspec\treason\n"

// Read reads what Text wrote.
func Read(text string) (Outcomes, error) {
	all := Outcomes{}
	for line := range strings.Lines(strings.TrimPrefix(text, header)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("not an outcome: %q", line)
		}
		s := Spec{fields[0], fields[3]}
		if _, double := all[s]; double {
			return nil, fmt.Errorf("two outcomes of %q", s.Text)
		}
		all[s] = Outcome{Set: fields[1], State: fields[2], Reason: fields[4]}
	}
	return all, nil
}

// Text is the outcomes as a file has them: a header, and a line for each spec.
func (o Outcomes) Text() string {
	var b strings.Builder
	b.WriteString(header)
	for _, s := range o.Specs() {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", s.File, o[s].Set, o[s].State, s.Text, o[s].Reason)
	}
	return b.String()
}

// Specs are the outcomes' specs in the file's order.
func (o Outcomes) Specs() []Spec {
	return slices.SortedFunc(maps.Keys(o), func(a, b Spec) int {
		return strings.Compare(a.File+"\t"+a.Text, b.File+"\t"+b.Text)
	})
}

// Update is o with the outcomes of a run. A reason stays as long as its spec does not pass.
func (o Outcomes) Update(run Outcomes) Outcomes {
	all := maps.Clone(o)
	for s, got := range run {
		if got.State == Passed {
			got.Reason = ""
		} else if known := o[s].Reason; known != "" {
			got.Reason = known
		}
		all[s] = got
	}
	return all
}

// Of is the outcomes of the specs that other has, too.
func (o Outcomes) Of(other Outcomes) Outcomes {
	some := maps.Clone(o)
	maps.DeleteFunc(some, func(s Spec, _ Outcome) bool { _, has := other[s]; return !has })
	return some
}

// withoutReason lists the specs that do not pass and have no reason that a person wrote, and those that pass
// and have one.
func (o Outcomes) withoutReason() (problems []string) {
	for _, s := range o.Specs() {
		got := o[s]
		if (got.Reason == "") != (got.State == Passed) || strings.HasPrefix(got.Reason, unexplained) {
			problems = append(problems, fmt.Sprintf("%s: %s: %s, with the reason %q", s.File, s.Text, got.State, got.Reason))
		}
	}
	return problems
}

// Unlike lists the specs of a run that ended in another way than o says.
func (o Outcomes) Unlike(run Outcomes) (differences []string) {
	for _, s := range run.Specs() {
		want, known := o[s]
		got := run[s]
		switch {
		case !known:
			differences = append(differences, fmt.Sprintf("%s: %s: %s, and not in the file: %s", s.File, s.Text, got.State, got.Reason))
		case want.State != got.State:
			differences = append(differences, fmt.Sprintf("%s: %s: %s, not %s: %s", s.File, s.Text, got.State, want.State, got.Reason))
		}
	}
	return differences
}

// Files is a table in Markdown of how many specs of each file pass.
func (o Outcomes) Files() string {
	passes, specs := map[string]int{}, map[string]int{}
	for s, got := range o {
		specs[s.File]++
		if got.State == Passed {
			passes[s.File]++
		}
	}
	var b strings.Builder
	b.WriteString("| file | passed | of |\n|---|---|---|\n")
	for _, file := range slices.Sorted(maps.Keys(specs)) {
		fmt.Fprintf(&b, "| `%s` | %d | %d |\n", file, passes[file], specs[file])
	}
	return b.String()
}

// Lists are the numbers, and the reasons of specs that do not pass, in Markdown.
func (o Outcomes) Lists() string {
	passes, specs, reasons := map[string]int{}, map[string]int{}, map[string]int{}
	for _, got := range o {
		names := []string{"all"}
		if got.Set != "" {
			names = append(names, "label `"+got.Set+"`")
		}
		for _, name := range names {
			specs[name]++
			if got.State == Passed {
				passes[name]++
			}
		}
		if got.State != Passed {
			reasons[got.Reason]++
		}
	}
	var b strings.Builder
	b.WriteString("Passed:\n\n")
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		fmt.Fprintf(&b, "- %s: %d of %d\n", name, passes[name], specs[name])
	}
	b.WriteString("\nThe others:\n\n")
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "- %d: %s\n", reasons[reason], reason)
	}
	return b.String()
}
