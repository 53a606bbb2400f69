package kubevirt

import (
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// outcomesFile holds how each spec ends.
const outcomesFile = "outcomes.tsv"

// TestReasons: each spec that does not pass has a reason that a person wrote.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile(golden.Path(outcomesFile))
	assert.NilError(t, err)
	all, err := readOutcomes(string(text))
	assert.NilError(t, err)
	for _, s := range all.specs() {
		o := all[s]
		if (o.reason == "") != (o.state == passed) || strings.HasPrefix(o.reason, "not looked into") {
			t.Errorf("%s: %s: %s, with the reason %q", s.file, s.text, o.state, o.reason)
		}
	}
	assert.Equal(t, all.text(), string(text))
}

// TestUnlike: what got worse, what got better, and what is new are all reported.
func TestUnlike(t *testing.T) {
	s := func(text string) spec { return spec{"vm_test.go", text} }
	want := outcomes{s("stays"): {state: passed}, s("worse"): {state: passed}, s("better"): {state: "failed", reason: "no migration"}}
	run := outcomes{
		s("stays"): {state: passed}, s("worse"): {state: "failed", reason: "timeout"}, s("better"): {state: passed}, s("new"): {state: passed},
	}
	assert.DeepEqual(t, want.unlike(run), []string{
		"vm_test.go: better: passed, not failed: ",
		"vm_test.go: new: passed, and not in the file: ",
		"vm_test.go: worse: failed, not passed: timeout",
	})
	after := want.update(run)
	assert.Equal(t, len(after.unlike(run)), 0)
	again, err := readOutcomes(after.text())
	assert.NilError(t, err)
	assert.DeepEqual(t, again.text(), after.text())
}
