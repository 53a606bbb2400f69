package kubevirt

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// page shows the outcomes, between marks.
const page = "../../docs/conformance.md"

var marks = regexp.MustCompile(`(?s)(<!-- outcomes: begin[^>]*-->\n).*(<!-- outcomes: end -->\n)`)

// TestPage holds the page against the file of outcomes. With -update it writes the page.
func TestPage(t *testing.T) {
	file, err := os.ReadFile(golden.Path(outcomesFile))
	assert.NilError(t, err)
	all, err := readOutcomes(string(file))
	assert.NilError(t, err)
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	assert.Assert(t, marks.Match(text), "%s has no marks", page)
	want := marks.ReplaceAllString(string(text), "${1}\n"+all.lists()+"\n${2}")
	if golden.FlagUpdate() {
		assert.NilError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, string(text), want, "run again with -update")
}

// lists are the numbers, and the reasons of specs that do not pass.
func (o outcomes) lists() string {
	passes, specs, reasons := map[string]int{}, map[string]int{}, map[string]int{}
	for _, got := range o {
		names := []string{"all"}
		if got.set != "" {
			names = append(names, "label `"+got.set+"`")
		}
		for _, name := range names {
			specs[name]++
			if got.state == passed {
				passes[name]++
			}
		}
		if got.state != passed {
			reasons[got.reason]++
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
