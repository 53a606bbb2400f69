package kubevirt

import (
	"os"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// page shows the outcomes, between marks.
const page = "../../docs/conformance.md"

var marks = regexp.MustCompile(`(?s)(<!-- outcomes: begin[^>]*-->\n).*(<!-- outcomes: end -->\n)`)

// TestPage holds the page against the file of outcomes. With -update it writes the page.
func TestPage(t *testing.T) {
	file, err := os.ReadFile(golden.Path(outcomesFile))
	assert.NilError(t, err)
	all, err := specs.Read(string(file))
	assert.NilError(t, err)
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	assert.Assert(t, marks.Match(text), "%s has no marks", page)
	want := marks.ReplaceAllString(string(text), "${1}\n"+all.Lists()+"\n${2}")
	if golden.FlagUpdate() {
		assert.NilError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, string(text), want, "run again with -update")
}
