//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
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

// A node that cannot start VMs loses the label by which the scheduler chooses it. A kubelet that starts meanwhile checks
// its pods' node selectors again: VMs that run must not have the label there. It runs alone, like the one above.
func TestTheKubeletRestartsWhileLibvirtdIsAway(t *testing.T) {
	name := made(t, machine(strangersVMI("outlives", on(steady))))
	boot, pod := answerOf(t, name, ""), vmiPod(t, name)
	node1 := suite.Node(steady)
	assert.NilError(t, node1.Kill(t.Context(), node.Libvirtd, syscall.SIGKILL))
	away := true
	undo(t, func(ctx context.Context) error {
		if !away {
			return nil
		}
		return node1.Resume(ctx, node.Libvirtd)
	})
	schedulable := func(want string) {
		t.Helper()
		wait.Success(t, "the label of a node that starts VMs", func(ctx context.Context) error {
			got, err := suite.Kubectl(ctx, "get", "node", steady, "-o", `jsonpath={.metadata.labels.kubevirt\.io/schedulable}`)
			if err == nil && got != want {
				err = fmt.Errorf("it is %q, want %q", got, want)
			}
			return err
		})
	}
	schedulable("")
	since := time.Now()
	assert.NilError(t, node1.Restart(t.Context(), cluster.Kubelet))
	wait.Success(t, "the kubelet's report", func(ctx context.Context) error {
		text, err := suite.Kubectl(ctx, "get", "node", steady, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}`)
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, text)
		if err == nil && !at.After(since) {
			err = fmt.Errorf("the last one is of %s", text)
		}
		return err
	})
	assert.NilError(t, node1.Resume(t.Context(), node.Libvirtd))
	away = false
	schedulable("true")
	if now := vmiPod(t, name); now != pod {
		t.Errorf("the instance's pod is %s; it was %s", now, pod)
	}
	if now := answerOf(t, name, ""); now != boot {
		t.Errorf("the guest's boot is %s; it was %s", now, boot)
	}
	kubectl(t, "delete", "vm", name)
}

// vmiPod returns the UID of the pod that has an instance's guest.
func vmiPod(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "get", "pods", "-l", "vm.kubevirt.io/name="+name, "-o", "jsonpath={.items[*].metadata.uid}")
}
