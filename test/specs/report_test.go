package specs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// limited is a part of a report of ginkgo 2.28 about a suite that its time limit ended.
const limited = `[{"SpecReports": [
	{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed", "LeafNodeLocation": {"FileName": "/x/tests/suite_test.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "passes", "State": "passed", "NumAttempts": 1, "LeafNodeLocation": {"FileName": "/x/tests/a.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "fails", "State": "failed", "Failure": {"Message": "not so"},
		"ContainerHierarchyLabels": [["conformance"]], "LeafNodeLocation": {"FileName": "/x/tests/b/b.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "has a limit of its own", "State": "timedout", "Failure": {"Message": "A spec timeout occurred"},
		"LeafNodeLocation": {"FileName": "/x/tests/a.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "skips itself", "State": "skipped", "Failure": {"Message": "one node"},
		"LeafNodeLocation": {"FileName": "/x/tests/a.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "is cut off", "State": "timedout", "Failure": {"Message": "A suite timeout occurred"},
		"LeafNodeLocation": {"FileName": "/x/tests/a.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "is interrupted", "State": "interrupted", "Failure": {"Message": "Interrupted by User"},
		"LeafNodeLocation": {"FileName": "/x/tests/a.go"}},
	{"LeafNodeType": "It", "LeafNodeText": "did not begin", "State": "skipped", "LeafNodeLocation": {"FileName": "/x/tests/a.go"}}
]}]`

// TestLimitedRun: a run that ends at its time limit has the outcomes of the specs that ended, and no others. Those
// that a file knows stay.
func TestLimitedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	assert.NilError(t, os.WriteFile(file, []byte(limited), 0o600))
	run, err := ReadReport(file, "/tests/", "conformance", All)
	assert.NilError(t, err)
	a := func(text string) Spec { return Spec{"a.go", text} }
	want := Outcomes{
		a("passes"): {State: Passed}, {"b/b.go", "fails"}: {State: Failed, Set: "conformance", Reason: unexplained + "not so"},
		a("has a limit of its own"): {State: Failed, Reason: unexplained + "A spec timeout occurred"},
		a("skips itself"):           {State: Skipped, Reason: unexplained + "one node"},
	}
	assert.DeepEqual(t, run, want)

	known := Outcomes{a("passes"): {State: Failed, Reason: "a reason"}, a("is cut off"): {State: Passed}, a("did not begin"): {State: Failed, Reason: "another"}}
	after := known.Update(run)
	assert.DeepEqual(t, after[a("passes")], Outcome{State: Passed})
	assert.DeepEqual(t, after[a("is cut off")], known[a("is cut off")])
	assert.DeepEqual(t, after[a("did not begin")], known[a("did not begin")])
	assert.Equal(t, len(after), 6)
}

// TestCounts: what a spec says and does decides whether it counts.
func TestCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	assert.NilError(t, os.WriteFile(file, []byte(`[{"SpecReports": [
		{"LeafNodeType": "It", "LeafNodeText": "steps", "State": "passed", "SpecEvents": [{"Message": "makes a VM"}]},
		{"LeafNodeType": "It", "LeafNodeText": "says", "State": "passed", "CapturedGinkgoWriterOutput": "there was a VM"},
		{"LeafNodeType": "It", "LeafNodeText": "neither", "State": "passed", "SpecEvents": [{"Message": "makes a pod"}]}
	]}]`), 0o600))
	got, err := ReadReport(file, "/tests/", "", func(said string) bool { return strings.Contains(said, "a VM") })
	assert.NilError(t, err)
	assert.DeepEqual(t, got, Outcomes{{"", "steps"}: {State: Passed}, {"", "says"}: {State: Passed}})
}

// TestOf: of two runs that a time limit ended, the specs that both have are compared.
func TestOf(t *testing.T) {
	a, b, c := Spec{"a.go", "a"}, Spec{"a.go", "b"}, Spec{"a.go", "c"}
	one, other := Outcomes{a: {State: Passed}, b: {State: Failed}}, Outcomes{b: {State: Passed}, c: {State: Passed}}
	assert.DeepEqual(t, one.Unlike(other.Of(one)), []string{"a.go: b: passed, not failed: "})
}
