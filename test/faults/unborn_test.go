//go:build faults

package faults

import (
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/test/node"
)

// TestLibvirtdKilledBeforeQEMU has libvirtd die when it has begun to start a domain that has no
// process yet. The next one would keep that domain in its start for ever.
func TestLibvirtdKilledBeforeQEMU(t *testing.T) {
	r := begin(t)
	run := filepath.Join(suite.Dir(), "run/libvirt")
	r.does(t, life[:started-1]...)
	var start <-chan struct{}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		var seen bool
		if seen, start = unbornIn(t, r.pod, run); seen {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no domain was seen in its start")
		}
		r.does(t, life[ending:podEnd]...)
		r.does(t, life[1:started-1]...)
	}
	r.loses(t, node.Libvirtd)
	assert.NilError(t, resume(t.Context(), node.Libvirtd))
	<-start
	if left, err := domain.FindUnborn(run); err != nil || len(left) > 0 {
		t.Errorf("stuck in their start: %+v, %v", left, err)
	}
}

// unbornIn starts a container and reports whether its domain was seen without a process, which it
// is for some milliseconds: where it was not, the start is over.
func unbornIn(t *testing.T, p *pod, run string) (seen bool, start <-chan struct{}) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = life[started-1].do(t.Context(), p)
	}()
	for {
		unborn, err := domain.FindUnborn(run)
		assert.NilError(t, err)
		if len(unborn) > 0 {
			return true, over
		}
		select {
		case <-over:
			return false, over
		case <-time.After(200 * time.Microsecond):
		}
	}
}
