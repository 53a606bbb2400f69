package admission

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/node"
)

// What people read of a wrong manifest is kept as kubectl prints it, for some of them.
func TestWhatKubectlPrints(t *testing.T) {
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	of := suite.server.Config()
	server := []string{
		"--server", of.Host, "--token", of.BearerToken, "--certificate-authority", of.CAFile,
		"--tls-server-name", of.ServerName, "--cache-dir", t.TempDir(), "--kubeconfig", os.DevNull,
	}
	var all strings.Builder
	for _, name := range []string{
		"cpu-as-text", "cpu-negative", "disk-without-volume", "host-devices", "memory-missing",
		"volume-without-source", "old-registry-disk", "set-annotation",
	} {
		file := filepath.Join(root, "controller", "admission", "testdata", "refused", name+".yaml")
		for _, flags := range [][]string{nil, {"--server-side"}} {
			args := append(append([]string{"apply", "-f", file}, flags...), server...)
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), args...).CombinedOutput()
			if err == nil {
				t.Errorf("%s is taken: %s", name, out)
			}
			said := strings.ReplaceAll(string(out), root, "")
			fmt.Fprintf(&all, "# kubectl apply %s\n%s\n", strings.Join(append(flags, "-f "+name+".yaml"), " "), said)
		}
	}
	golden.Assert(t, all.String(), "kubectl.golden")
}
