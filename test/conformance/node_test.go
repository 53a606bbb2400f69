//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/specs"
)

const (
	// density are the words of the specs of a node's density and use of resources.
	density = `Density \[Serial\]|Resource-usage`
	// ofOtherKubelets are those of the specs that start the kubelet with another configuration, as a unit of systemd.
	ofOtherKubelets = `higher API QPS`
	// administrator is the account by which the suite calls the API server.
	administrator = "suite"
)

// asAdministrator lets the account do all.
const asAdministrator = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: suite, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: suite}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: suite, namespace: kube-system}]
`

// TestNode runs the suite's specs of a node's density and use of resources, with containerd and through the shim, which
// counts to the runtime then. Most only measure: the table of both sides' figures is printed.
func TestNode(t *testing.T) {
	got, measured := map[string]specs.Outcomes{}, map[string]map[string]map[figure]float64{}
	for _, side := range []string{plain, through} {
		assert.Assert(t, t.Run(side, func(t *testing.T) { got[side], measured[side] = runOnNode(t, side) }))
	}
	table := figuresTable(measured)
	fmt.Print(table)
	if golden.FlagUpdate() {
		before, err := os.ReadFile(golden.Path(figuresFile))
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(golden.Path(figuresFile), []byte(withOthers(table, string(before))), 0o644))
	}
	specs.Compare(t, golden.Path(nodeOutcomesFile), got[through])
	if unlike := got[plain].Unlike(got[through].Of(got[plain])); len(unlike) > 0 {
		t.Errorf("these specs ended in another way through the shim than with containerd alone:\n%s", strings.Join(unlike, "\n"))
	}
}

// runOnNode runs the specs on a separate cluster of one node, and returns what they have measured.
func runOnNode(t *testing.T, side string) (specs.Outcomes, map[string]map[figure]float64) {
	t.Helper()
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "nodevirt-") // t.TempDir's paths are too long for sockets
	assert.NilError(t, err)
	assert.NilError(t, os.Chmod(dir, 0o711))
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Nodes: 1, Plain: side == plain, Bound: true, Kubelet: func(kubelet map[string]any) {
		root, _ := kubelet["cgroupRoot"].(string)
		kubelet["kubeletCgroups"] = root + "/kubelet"
		kubelet["address"], kubelet["readOnlyPort"] = "0.0.0.0", 10255 // where the suite reads its metrics; the node's network is its own
	}})
	t.Cleanup(func() {
		if c != nil {
			assert.Check(t, c.Stop(context.WithoutCancel(ctx)))
		}
	})
	assert.NilError(t, err)
	assert.NilError(t, pushImages(ctx, c))
	assert.NilError(t, pushCAdvisor(ctx, c))
	runtime := []string{node.Containerd}
	if side == through {
		runtime = append(runtime, node.Shim)
	}
	assert.NilError(t, c.Nodes()[0].Group(ctx, "runtime", runtime...))
	report := filepath.Join(t.ArtifactDir(), side+".json")
	output := runNodeSuite(t, c, report)
	got, err := specs.ReadReport(report, "/test/e2e_node/", set, specs.All)
	assert.NilError(t, err)
	assert.Assert(t, len(got) > 0, "no spec ran")
	figures, err := figuresOf(output)
	assert.NilError(t, err)
	return got, figures
}

// pushCAdvisor gives a cluster the image by which the specs measure.
func pushCAdvisor(ctx context.Context, c *cluster.Cluster) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	busybox, err := images.Busybox(ctx, c.Control().GuestOptions())
	if err != nil {
		return err
	}
	img, err := images.Extend(busybox, v1.Config{Entrypoint: []string{"/cadvisor"}},
		images.Layer{Files: []images.File{{Name: "cadvisor", Mode: 0o755, From: filepath.Join(bin, "cadvisor")}}})
	if err != nil {
		return err
	}
	_, err = c.Push(ctx, "cadvisor/cadvisor:v0.47.2", img)
	return err
}

// runNodeSuite runs the suite on the node, and returns its output. Specs that fail are no error.
func runNodeSuite(t *testing.T, c *cluster.Cluster, report string) string {
	t.Helper()
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	assert.NilError(t, c.Apply(t.Context(), asAdministrator))
	token, err := c.Kubectl(t.Context(), "--namespace=kube-system", "create", "token", administrator, "--duration=12h")
	assert.NilError(t, err)
	dir := filepath.Dir(report)
	system := filepath.Join(dir, "system.yaml") // the machine's kernel is not what is tested
	assert.NilError(t, os.WriteFile(system, []byte("os: Linux\n"), 0o644))
	n := c.Nodes()[0]
	command := []string{
		"-C", dir, filepath.Join(bin, "e2e_node.test"), "--start-services=false", "--stop-services=false", "--prepull-images=false",
		"--host=https://" + c.ControlAddress() + ":6443", "--bearer-token=" + strings.TrimSpace(token), "--node-name=" + n.Name(),
		"--container-runtime-endpoint=unix://" + n.Endpoint(), "--system-spec-file=" + system, "--test.timeout=0",
		"--ginkgo.timeout=" + specs.Setting(timeVariable, "6h"), "--ginkgo.no-color", "--ginkgo.v",
		"--ginkgo.json-report=" + report, "--ginkgo.focus=" + specs.Setting(focusVariable, density),
		"--ginkgo.skip=" + specs.Setting(skipVariable, ofOtherKubelets),
	}
	output := strings.TrimSuffix(report, ".json") + ".log"
	specs.Run(t, n.Command(t.Context(), "env", command...), output)
	text, err := os.ReadFile(output)
	assert.NilError(t, err)
	return string(text)
}
