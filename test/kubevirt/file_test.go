package kubevirt

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// outcomesFile holds how each spec ends.
const outcomesFile = "outcomes.tsv"

// TestReasons: each spec that does not pass has a reason that a person wrote.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile(golden.Path(outcomesFile))
	assert.NilError(t, err)
	all, err := specs.Read(string(text))
	assert.NilError(t, err)
	for _, problem := range all.WithoutReason() {
		t.Error(problem)
	}
	assert.Equal(t, all.Text(), string(text))
}
