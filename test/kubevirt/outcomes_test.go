package kubevirt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// passed is the state, as ginkgo's report has it, of a spec that did what it should.
const passed = "passed"

// spec names a spec: its file below the suite's folder, and its words.
type spec struct{ file, text string }

// outcome is how a spec ended.
type outcome struct {
	state  string // passed, failed or skipped
	set    string // conformance for a spec of KubeVirt's conformance; empty for others
	reason string // why it does not pass, for a reader who wants to check it; empty if it passes
}

// outcomes are those of a run, or of all specs that the file knows.
type outcomes map[spec]outcome

// header is the file's first line.
const header = "file\tset\toutcome\tspec\treason\n"

// readOutcomes reads what text wrote.
func readOutcomes(text string) (outcomes, error) {
	all := outcomes{}
	for line := range strings.Lines(strings.TrimPrefix(text, header)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("not an outcome: %q", line)
		}
		s := spec{fields[0], fields[3]}
		if _, double := all[s]; double {
			return nil, fmt.Errorf("two outcomes of %q", s.text)
		}
		all[s] = outcome{set: fields[1], state: fields[2], reason: fields[4]}
	}
	return all, nil
}

// text is the outcomes as the file has them.
func (o outcomes) text() string {
	var b strings.Builder
	b.WriteString(header)
	for _, s := range o.specs() {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", s.file, o[s].set, o[s].state, s.text, o[s].reason)
	}
	return b.String()
}

// specs are the outcomes' specs in the file's order.
func (o outcomes) specs() []spec {
	return slices.SortedFunc(maps.Keys(o), func(a, b spec) int {
		return strings.Compare(a.file+"\t"+a.text, b.file+"\t"+b.text)
	})
}

// update is o with the outcomes of a run. A reason stays as long as its spec does not pass.
func (o outcomes) update(run outcomes) outcomes {
	all := maps.Clone(o)
	for s, got := range run {
		if got.state == passed {
			got.reason = ""
		} else if known := o[s].reason; known != "" {
			got.reason = known
		}
		all[s] = got
	}
	return all
}

// unlike lists the specs of a run that ended in another way than the file says.
func (o outcomes) unlike(run outcomes) (differences []string) {
	for _, s := range run.specs() {
		want, known := o[s]
		got := run[s]
		switch {
		case !known:
			differences = append(differences, fmt.Sprintf("%s: %s: %s, and not in the file: %s", s.file, s.text, got.state, got.reason))
		case want.state != got.state:
			differences = append(differences, fmt.Sprintf("%s: %s: %s, not %s: %s", s.file, s.text, got.state, want.state, got.reason))
		}
	}
	return differences
}
