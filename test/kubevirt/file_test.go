package kubevirt

import (
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// outcomesFile holds how each spec ends.
const outcomesFile = "outcomes.tsv"

// TestReasons: each spec that does not pass has a reason that a person wrote.
func TestReasons(t *testing.T) { specs.Reasons(t, golden.Path(outcomesFile)) }

// TestPage holds the page against the file of outcomes. With -update it writes the page.
func TestPage(t *testing.T) {
	all, _ := specs.FromFile(t, golden.Path(outcomesFile))
	specs.InPage(t, "../../docs/conformance.md", "outcomes", all.Lists())
}
