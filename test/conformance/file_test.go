package conformance

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// outcomesFile holds how each spec ends; vmOutcomesFile those whose pods are VMs; nodeOutcomesFile those of nodes'
// density and use of resources.
const (
	outcomesFile     = "outcomes.tsv"
	vmOutcomesFile   = "vm.tsv"
	nodeOutcomesFile = "node.tsv"
)

// The clusters' sides: those whose kubelets use containerd, and those that use the shim.
const (
	plain   = "containerd"
	through = "shim"
)

// TestReasons: each spec that does not pass has a reason that a person wrote.
func TestReasons(t *testing.T) {
	for _, file := range []string{outcomesFile, vmOutcomesFile, nodeOutcomesFile} {
		specs.Reasons(t, golden.Path(file))
	}
}

// TestPage holds the page against the file of outcomes. With -update it writes the page.
func TestPage(t *testing.T) {
	all, _ := specs.FromFile(t, golden.Path(outcomesFile))
	specs.InPage(t, "../../docs/conformance.md", "kubernetes", all.Lists())
	figures, err := os.ReadFile(golden.Path(figuresFile))
	assert.NilError(t, err)
	specs.InPage(t, "../../docs/conformance.md", "kubernetes-nodes", string(figures))
	vms, _ := specs.FromFile(t, golden.Path(vmOutcomesFile))
	specs.InPage(t, "../../docs/conformance.md", "kubernetes-vms", vms.Files()+"\n"+vms.Lists())
}
