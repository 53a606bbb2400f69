//go:build kubevirt

package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/specs"
)

// conformance is the label of the specs that say whether a cluster serves KubeVirt's API.
const conformance = "conformance"

// version is the suite's, and the tag of the images that it names.
const version = "v1.8.4"

// What the environment may say, so that a run can be narrowed: make test-kubevirt FOCUS=… LABELS=….
const (
	focusVariable  = "KUBEVIRT_FOCUS"  // a regular expression of specs' words
	filesVariable  = "KUBEVIRT_FILES"  // a regular expression of the files of specs
	labelsVariable = "KUBEVIRT_LABELS" // a filter of ginkgo's labels
	procsVariable  = "KUBEVIRT_PROCS"  // how many specs run at once
	newVariable    = "KUBEVIRT_NEW"    // any value: only specs without an outcome in the file
	waitVariable   = "KUBEVIRT_WAIT"   // any value: only specs that need a StorageClass which waits for a pod
	timeVariable   = "KUBEVIRT_TIME"   // how long they may take; those that have not ended then do not count
)

// usual are the labels of the specs that run if no other are asked for.
const usual = "conformance && !sig-storage && !sig-compute-migrations && !RequiresOutsideConnectivity"

// usualProcs is how many specs run at once if nothing else is said.
const usualProcs = "2"

// storageClasses name the cluster's StorageClass for what specs need. The first is that of file systems that
// one node mounts.
const storageClasses = `{
	"storageRWOFileSystem": %q, "storageRWXFileSystem": "local", "storageRWOBlock": "local", "storageRWXBlock": "local",
	"storageSnapshot": "local", "storageClassCSI": "local", "storageVMState": "local"
}`

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	options := cluster.Options{
		DualStack: true, Policies: true, Storage: withStorage(), CNI: cluster.Multus,
		// The cluster does not have the image; a spec asks for its name.
		Controller: []string{
			"-guestfs-image=quay.io/kubevirt/libguestfs-tools:" + version, "-export-proxy-namespace=" + installed,
			"-hook-sidecar-image=quay.io/" + sidecarShim,
		},
		ShimConfig: func(all map[string]any) { all["vm"] = map[string]any{"hook_sidecars": true, "pod_network_mac": true} },
	}
	code := cluster.Main(m, options, func(ctx context.Context, c *cluster.Cluster) error {
		shared = c
		if err := prepare(ctx, c); err != nil || !withStorage() {
			return err
		}
		return errors.Join(mountHostImages(ctx, c), startCDI(ctx, c), startPrometheus(ctx, c))
	})
	_ = os.Remove(hostImages) // the nodes' mounts have ended with them; the fast specs have none
	os.Exit(code)
}

// TestSuite runs the suite, or a part of it, and compares each spec's end with the file's.
func TestSuite(t *testing.T) {
	report := filepath.Join(t.ArtifactDir(), "report.json")
	run(t, report)
	got, err := specs.ReadReport(report, "/tests/", conformance, specs.All)
	assert.NilError(t, err)
	assert.Assert(t, len(got) > 0, "no spec ran")
	fmt.Print(got.Lists())
	checkFast(t, got)
	specs.Compare(t, golden.Path(outcomesFile), got)
}

// run runs the suite. Specs that fail are no error; a suite that does not come to its end is.
func run(t *testing.T, report string) {
	t.Helper()
	dir := filepath.Dir(report)
	config := filepath.Join(dir, "config.json")
	class, labels := "local", "!"
	if os.Getenv(waitVariable) != "" {
		class, labels = "local-wait", ""
	}
	labels = "(" + specs.Setting(labelsVariable, usual) + ") && " + labels + "RequiresWFFCStorageClass"
	assert.NilError(t, os.WriteFile(config, fmt.Appendf(nil, storageClasses, class), 0o644))
	ginkgo := []string{
		"--procs=" + specs.Setting(procsVariable, usualProcs), "--timeout=" + specs.Setting(timeVariable, "3h"),
		"--label-filter=" + labels, "--focus=" + focus(t),
	}
	if os.Getenv(fastVariable) != "" {
		ginkgo = append(ginkgo, "--flake-attempts=2") // each change runs these; what passed late is printed
	}
	if files := os.Getenv(filesVariable); files != "" {
		ginkgo = append(ginkgo, "--focus-file="+files)
	}
	if os.Getenv(newVariable) != "" {
		if have := known(t); have != "" {
			ginkgo = append(ginkgo, "--skip="+have)
		}
	}
	runGinkgo(t, report, ginkgo, []string{"--config=" + config})
}

// runGinkgo runs the suite with arguments for ginkgo, and others for the suite.
func runGinkgo(t *testing.T, report string, ginkgo, suite []string) {
	t.Helper()
	dir := filepath.Dir(report)
	bin, err := node.CheckoutBin()
	assert.NilError(t, err)
	program := func(name string) string { return filepath.Join(bin, name) }
	kubeconfig := filepath.Join(filepath.Dir(shared.Kubeconfig()), "pki", "admin.kubeconfig")
	command := slices.Concat(
		[]string{"-C", dir, program("kubevirt-ginkgo"), "--no-color", "-v", "--output-dir=" + dir, "--json-report=" + filepath.Base(report)},
		ginkgo,
		[]string{
			program("kubevirt.test"), "--",
			"--kubeconfig=" + kubeconfig, "--container-prefix=quay.io/kubevirt", "--container-tag=" + version,
			"--kubectl-path=" + program("kubectl"), "--virtctl-path=" + program("virtctl"),
			"--installed-namespace=" + installed, "--skip-shasums-check", "--artifacts=" + dir,
		},
		suite)
	cmd := shared.Control().Command(t.Context(), "env", command...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "ARTIFACTS="+dir,
		"REPORTER_MAX_FAILS=-1") // it would collect the cluster's state after each failure
	specs.Run(t, cmd, report+".log")
}

// known is a regular expression of the specs that have an outcome, in the files that run: one of all files would be
// longer than an argument may be.
func known(t *testing.T) string {
	t.Helper()
	files, err := regexp.Compile(os.Getenv(filesVariable))
	assert.NilError(t, err)
	all, _ := specs.FromFile(t, golden.Path(outcomesFile))
	var words []string
	for s := range all {
		if files.MatchString("/" + s.File) { // ginkgo matches whole paths
			words = append(words, s.Text)
		}
	}
	return anyOf(words)
}
