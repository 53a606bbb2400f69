//go:build faults

package faults

import (
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/test/node"
)

// TestLibvirtdKilledBeforeQEMU has libvirtd die when it has begun to start a domain that has no
// process yet. The next one would keep that domain in its start for ever.
func TestLibvirtdKilledBeforeQEMU(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started-1]...)
	var start sync.WaitGroup
	start.Go(func() { _ = life[started-1].do(t.Context(), r.pod) })
	run := filepath.Join(suite.Dir(), "run/libvirt")
	for deadline := time.Now().Add(convergence); ; time.Sleep(200 * time.Microsecond) {
		unborn, err := domain.FindUnborn(run)
		check(t, err)
		if len(unborn) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no domain was seen in its start")
		}
	}
	check(t, suite.Kill(t.Context(), node.Libvirtd, syscall.SIGKILL))
	check(t, resume(t.Context(), node.Libvirtd))
	start.Wait()
	if left, err := domain.FindUnborn(run); err != nil || len(left) > 0 {
		t.Errorf("stuck in their start: %+v, %v", left, err)
	}
}
