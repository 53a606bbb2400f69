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
	want := marks.ReplaceAllString(string(text), "${1}\n"+all.tables()+"\n${2}")
	if golden.FlagUpdate() {
		assert.NilError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, string(text), want, "run again with -update")
}

// tables are the numbers by files, and the reasons of the specs that do not pass.
func (o outcomes) tables() string {
	counts, reasons, whole := map[string]map[string]int{}, map[string]int{}, map[string]int{}
	inSet := map[string]int{}
	for s, got := range o {
		if counts[s.file] == nil {
			counts[s.file] = map[string]int{}
		}
		counts[s.file][got.state]++
		whole[got.state]++
		if got.set != "" {
			inSet[got.state]++
		}
		if got.state != passed {
			reasons[got.reason]++
		}
	}
	var b strings.Builder
	row := func(name string, n map[string]int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", name, n[passed], n["failed"], n["skipped"])
	}
	b.WriteString("| file | passed | failed | skipped |\n|---|---|---|---|\n")
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		row("`"+file+"`", counts[file])
	}
	row("all", whole)
	row("of these: label `conformance`", inSet)
	b.WriteString("\n| why a spec does not pass | specs |\n|---|---|\n")
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "| %s | %d |\n", strings.ReplaceAll(reason, "|", `\|`), reasons[reason])
	}
	return b.String()
}
