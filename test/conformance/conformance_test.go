//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/specs"
)

// What the environment may say, so that a run can be narrowed: make test-conformance FOCUS=….
const (
	focusVariable = "CONFORMANCE_FOCUS" // a regular expression of specs' words
	skipVariable  = "CONFORMANCE_SKIP"  // a regular expression of the words of specs to leave out
	procsVariable = "CONFORMANCE_PROCS" // how many specs run at once
	sideVariable  = "CONFORMANCE_SIDE"  // containerd or shim: only that cluster, compared with the file
	timeVariable  = "CONFORMANCE_TIME"  // how long they may take on a cluster; those that have not ended then do not count
)

// usual are the words of the specs that run if no other are asked for.
const usual = `\[Conformance\]|\[NodeConformance\]`

// set is the label of the specs of Kubernetes' conformance.
const set = "Conformance"

// TestSuite runs the suite, or a part of it, on both clusters, one after the other. Each spec must end in the
// same way on both, and as the file says.
func TestSuite(t *testing.T) {
	sides := []string{plain, through}
	if only := os.Getenv(sideVariable); only != "" {
		sides = []string{only}
	}
	got := map[string]specs.Outcomes{}
	for _, side := range sides {
		assert.Assert(t, t.Run(side, func(t *testing.T) { got[side] = runOn(t, side, usual, nothing, specs.All) }))
		fmt.Printf("%s:\n\n%s\n", side, got[side].Lists())
	}
	if len(sides) == 2 {
		shim := got[through]
		if os.Getenv(timeVariable) != "" { // the clusters came to different specs
			shim = shim.Of(got[plain])
		}
		if unlike := got[plain].Unlike(shim); len(unlike) > 0 {
			t.Errorf("these specs ended in another way through the shim than with containerd alone:\n%s", strings.Join(unlike, "\n"))
		}
	}

	specs.Compare(t, golden.Path(outcomesFile), got[sides[len(sides)-1]])
}

// nothing is what a cluster needs beside the suite's images.
func nothing(context.Context, *cluster.Cluster) error { return nil }

// runOn runs the suite on a separate cluster, when prepare has made it ready. Focus are the words of the specs
// that run if no other are asked for; those count whose output does.
func runOn(t *testing.T, side, focus string, prepare func(context.Context, *cluster.Cluster) error,
	counts func(output string) bool,
) specs.Outcomes {
	t.Helper()
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "nodevirt-") // t.TempDir's paths are too long for sockets
	assert.NilError(t, err)
	assert.NilError(t, os.Chmod(dir, 0o711))
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Plain: side == plain, Bound: true})
	t.Cleanup(func() {
		if c != nil {
			assert.Check(t, c.Stop(context.WithoutCancel(ctx)))
		}
	})
	assert.NilError(t, err)
	assert.NilError(t, pushImages(ctx, c))
	assert.NilError(t, prepare(ctx, c))
	report := filepath.Join(t.ArtifactDir(), side+".json")
	runSuite(t, c, focus, report)
	got, err := specs.ReadReport(report, "/test/e2e/", set, counts)
	assert.NilError(t, err)
	assert.Assert(t, len(got) > 0, "no spec ran")
	return got
}

// runSuite runs the suite. Specs that fail are no error; a suite that does not come to its end is.
func runSuite(t *testing.T, c *cluster.Cluster, focus, report string) {
	t.Helper()
	dir := filepath.Dir(report)
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	kubeconfig := filepath.Join(filepath.Dir(c.Kubeconfig()), "pki", "admin.kubeconfig")
	command := []string{
		"-C", dir, filepath.Join(bin, "e2e-ginkgo"),
		"--procs=" + specs.Setting(procsVariable, "10"), "--no-color", "--timeout=" + specs.Setting(timeVariable, "6h"), "--poll-progress-after=5m",
		"--output-dir=" + dir, "--json-report=" + filepath.Base(report),
		"--focus=" + specs.Setting(focusVariable, focus), "--skip=" + os.Getenv(skipVariable),
		filepath.Join(bin, "e2e.test"), "--",
		"--kubeconfig=" + kubeconfig, "--kubectl-path=" + filepath.Join(bin, "kubectl"), "--provider=skeleton",
		"--num-nodes=2", "--report-dir=" + dir, "--dump-logs-on-failure=false", "--disable-log-dump",
	}
	cmd := c.Control().Command(t.Context(), "env", command...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	specs.Run(t, cmd, strings.TrimSuffix(report, ".json")+".log")
}
