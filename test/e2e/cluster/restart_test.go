//go:build cluster

package cluster

import (
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/node"
)

// Whatever of the node's software is restarted, guests live on, and their pods are not restarted.
// It runs alone, as the others would miss what it restarts.
func TestGuestsOutliveTheSoftwareAroundThem(t *testing.T) {
	first, on := answer(t, vm), nodeOf(t, vm)
	for _, c := range []struct {
		component string
		signal    syscall.Signal
	}{
		{cluster.Kubelet, syscall.SIGTERM},
		{node.Shim, syscall.SIGTERM},
		{node.Shim, syscall.SIGKILL},
		{node.Containerd, syscall.SIGKILL},
		{node.Libvirtd, syscall.SIGKILL},
	} {
		assert.NilError(t, on.Kill(t.Context(), c.component, c.signal))
		assert.NilError(t, on.Resume(t.Context(), c.component))
		assert.NilError(t, suite.WaitFor(t.Context(), "node/"+field(t, vm, ".spec.nodeName"), "condition=Ready"))
		// Asking goes by exec, and so through kubelet, shim and containerd.
		if got := answer(t, vm); got != first {
			t.Errorf("after %s of %s: %+v, before: %+v", c.signal, c.component, got, first)
		}
		if got := said(t, vm, "hostname"); got != vm {
			t.Errorf("exec after %s of %s: %q", c.signal, c.component, got)
		}
	}
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+vm, "condition=Ready"))
	// What the tests after this one ask, whose probes may have missed something, too.
	for namespace, deployment := range map[string]string{"nodevirt": "nodevirt-controller", "kube-system": "coredns"} {
		assert.NilError(t, suite.WaitFor(t.Context(), "deployment/"+deployment, "condition=Available", "--namespace="+namespace))
	}
	for _, name := range []string{vm, shell} {
		if got := field(t, name, ".status.containerStatuses[0].restartCount"); got != "0" {
			t.Errorf("restarts of %s: %s", name, got)
		}
	}
}
