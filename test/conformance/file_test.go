package conformance

import (
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// outcomesFile holds how each spec ends; vmOutcomesFile those whose pods are VMs.
const (
	outcomesFile   = "outcomes.tsv"
	vmOutcomesFile = "vm.tsv"
)

// TestReasons: each spec that does not pass has a reason that a person wrote.
func TestReasons(t *testing.T) {
	for _, file := range []string{outcomesFile, vmOutcomesFile} {
		specs.Reasons(t, golden.Path(file))
	}
}

// TestPage holds the page against the file of outcomes. With -update it writes the page.
func TestPage(t *testing.T) {
	all, _ := specs.FromFile(t, golden.Path(outcomesFile))
	specs.InPage(t, "../../docs/conformance.md", "kubernetes", all.Lists())
	vms, _ := specs.FromFile(t, golden.Path(vmOutcomesFile))
	specs.InPage(t, "../../docs/conformance.md", "kubernetes-vms", vms.Files()+"\n"+vms.Lists())
}
