//go:build faults

package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestClockJumps: the node's clock jumps by a day while the shim is away. What the shim then reads of
// its records is as far in the past, or in the future, as after a real jump; the machine's own clock
// is not changed. A jump under a shim that runs is no matter: it measures by the monotonic clock.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"forward": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			r := begin(t)
			r.does(t, life[:started]...)
			shift(t, -jump)
			t.Cleanup(func() { shift(t, jump) })

			assert.NilError(t, answers(t.Context()))
			assert.NilError(t, lists(t.Context()))
			assert.NilError(t, r.look(t.Context()))
			assert.NilError(t, converge(t.Context(), r.hasRate))
			if !killAll(r.domain()) {
				t.Fatal("QEMU did not run")
			}
			assert.NilError(t, converge(t.Context(), r.isTrue))
			// The next attempt, and its end.
			r.does(t, life[ending], life[ending+1], life[1], life[2])
			assert.NilError(t, r.look(t.Context()))
			r.does(t, life[ending], life[ending+1])
		})
	}
}

// hasRate returns an error unless the container's stats have the CPU time of a second.
func (r *round) hasRate(ctx context.Context) error {
	reply, err := suite.cri.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: r.container})
	if err == nil && reply.GetStats().GetCpu().GetUsageNanoCores() == nil {
		err = errors.New("the stats have no rate")
	}
	return err
}

var recordedTime = regexp.MustCompile(`("(?:created|started|finished)At": )"([^"]+)"`)

// shift moves all times of the shim's records, while the shim is away.
func shift(t *testing.T, by time.Duration) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	assert.NilError(t, suite.Kill(ctx, node.Shim, syscall.SIGKILL))
	for _, pattern := range []string{shimRoot("containers", "*", "record.json"), shimRoot("sandboxes", "*.json")} {
		files, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		for _, path := range files {
			text, err := os.ReadFile(path)
			assert.NilError(t, err)
			text = recordedTime.ReplaceAllFunc(text, func(field []byte) []byte {
				parts := recordedTime.FindSubmatch(field)
				at, err := time.Parse(time.RFC3339Nano, string(parts[2]))
				assert.NilError(t, err)
				return append(parts[1], `"`+at.Add(by).Format(time.RFC3339Nano)+`"`...)
			})
			assert.NilError(t, os.WriteFile(path, text, 0o600))
		}
	}
	assert.NilError(t, resume(ctx, node.Shim))
}
