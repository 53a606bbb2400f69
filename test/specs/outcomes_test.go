package specs

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestUnlike: what got worse, what got better, and what is new are all reported.
func TestUnlike(t *testing.T) {
	s := func(text string) Spec { return Spec{"vm_test.go", text} }
	want := Outcomes{s("stays"): {State: Passed}, s("worse"): {State: Passed}, s("better"): {State: Failed, Reason: "no migration"}}
	run := Outcomes{
		s("stays"): {State: Passed}, s("worse"): {State: Failed, Reason: "timeout"}, s("better"): {State: Passed}, s("new"): {State: Passed},
	}
	assert.DeepEqual(t, want.Unlike(run), []string{
		"vm_test.go: better: passed, not failed: ",
		"vm_test.go: new: passed, and not in the file: ",
		"vm_test.go: worse: failed, not passed: timeout",
	})
	after := want.Update(run)
	assert.Equal(t, len(after.Unlike(run)), 0)
	again, err := Read(after.Text())
	assert.NilError(t, err)
	assert.DeepEqual(t, again.Text(), after.Text())
}
