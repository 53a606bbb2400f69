//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestNoise cuts the shim's files at any byte, or fills them with noise. Only the VM whose record is hit
// is affected, and it can be removed.
func TestNoise(t *testing.T) {
	for i := range uint64(2) {
		t.Run(fmt.Sprint(*seed+i), func(t *testing.T) {
			noise := rand.New(rand.NewPCG(*seed+i, 1))
			hit := begin(t)
			if noise.IntN(2) == 0 {
				hit.overISCSI()
			}
			hit.does(t, life[:started]...)
			other, unstarted := hit.beside(t, "other"), hit.beside(t, "unstarted")
			other.does(t, life[:started]...)
			unstarted.does(t, life[:started-1]...)
			assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
			spoil(t, noise, shimRoot("containers", hit.container, "record.json"))
			for _, r := range []*round{other, unstarted} {
				spoil(t, noise, shimRoot("sandboxes", r.id+".json"))
			}
			spoil(t, noise, shimRoot("containers", other.container, "console.position"))
			assert.NilError(t, resume(t.Context(), node.Shim))

			assert.NilError(t, answers(t.Context()))
			assert.NilError(t, lists(t.Context()))
			for _, g := range suite.steady {
				assert.NilError(t, g.lives(t.Context()))
			}
			assert.NilError(t, converge(t.Context(), other.isTrue))
			unstarted.does(t, life[started-1])
			reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: hit.container})
			assert.NilError(t, err)
			if s := reply.GetStatus(); s.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN || s.GetReason() != "RecordRefused" {
				t.Errorf("the status of the VM that is hit: %v", s)
			}
			for _, c := range []call{life[ending], life[ending+1], life[podEnd]} {
				if err := c.do(t.Context(), hit.pod); status.Code(err) != codes.FailedPrecondition {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			hit.removeByHand(t)
			for _, r := range []*round{other, unstarted} {
				assert.NilError(t, os.RemoveAll(shimRoot("broken", r.id+".json")))
			}
			assert.NilError(t, suite.Restart(t.Context(), node.Shim))
			assert.NilError(t, redial())
		})
	}
}

// spoil cuts a file, or fills some of it with zeroes or noise.
func spoil(t *testing.T, noise *rand.Rand, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	from := noise.IntN(len(text))
	what := "cut"
	switch noise.IntN(3) {
	case 0:
		text = text[:from]
	case 1:
		what = "zeroes"
		clear(text[from:])
	default:
		what = "noise"
		for i := from; i < min(len(text), from+1+noise.IntN(4<<10)); i++ {
			text[i] = byte(noise.Uint32())
		}
	}
	t.Logf("%s from byte %d of %s", what, from, filepath.Base(path))
	assert.NilError(t, os.WriteFile(path, text, 0o600))
}
