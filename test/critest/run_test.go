//go:build critest

package critest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
)

// atOnce is how many specs run at a time: most of one's time goes by waiting.
const atOnce = 4

// offline are specs of images which only their makers' registry has: one names a digest.
const offline = "public image with digest"

// run runs critest on a new node. A spec that fails is no error; a suite that does not come to its
// end is.
func run(t *testing.T, all map[string]v1.Image, w way) result {
	t.Helper()
	n := node.ForTest(t, node.Options{Components: []string{node.Registry, node.Containerd, node.Shim}})
	push(t, n, all)
	endpoint, err := filepath.Rel(n.Dir(), w.socket(n))
	assert.NilError(t, err)
	dir := t.ArtifactDir()
	report := filepath.Join(dir, "junit.xml")
	// What critest shares with containers must not be on a path that only root may go.
	tmp := filepath.Join(n.Dir(), "tmp")
	assert.NilError(t, os.Mkdir(tmp, 0o1777))
	// ginkgo wants a working directory that is within the node's mounts.
	cmd := n.Command(t.Context(), "env", "-C", tmp, "critest", "-parallel", strconv.Itoa(atOnce),
		"-ginkgo.skip", offline, "-ginkgo.no-color", "-ginkgo.succinct", "-ginkgo.junit-report", report,
		"-runtime-endpoint", "unix:///"+endpoint, "-runtime-handler", w.handler)
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	out, err := cmd.CombinedOutput()
	log := filepath.Join(dir, "critest.log")
	assert.NilError(t, os.WriteFile(log, out, 0o644))
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("run critest: %v", err)
	}
	r, err := readReport(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(out))
	}
	return r
}

// tail is the end of an output.
func tail(out []byte) []byte {
	const most = 4000
	return out[max(0, len(out)-most):]
}
