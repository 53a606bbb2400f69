//go:build cluster

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// When a node's power is cut, its VMs are Unknown, and run nowhere else until the administrator
// declares the node out of service. Then each runs once; and when the node is back, nothing is left on
// it.
func TestLostNode(t *testing.T) {
	whole(t)
	name, first := answering(t, vm("lost", rather(harmed)))
	pod := kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name")
	watchTwo(t)
	cut(t)
	waitFor(t, "node/"+harmed, "condition=Ready=Unknown")
	waitFor(t, "vmi/"+name, "jsonpath={.status.phase}=Unknown")
	waitFor(t, "vmi/"+name, "condition=Ready=Unknown")
	waitFor(t, "vm/"+name, "jsonpath={.status.printableStatus}=Unknown")
	clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", name, "If the node is off for good")
	stays(t, name, pod)

	kubectl(t, "taint", "node", harmed, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	answer(t, name, first)
	assert.NilError(t, guestRuns(name))
	if at := vmiField(t, name, ".status.nodeName"); at != steady {
		t.Errorf("it runs on %s, whose power is cut", at)
	}

	assert.NilError(t, suite.Boot(t.Context(), harmed))
	waitFor(t, "node/"+harmed, "condition=Ready")
	kubectl(t, "taint", "node", harmed, "node.kubernetes.io/out-of-service-")
	clean(t)
	assert.NilError(t, guestRuns(name))
}

// cut cuts the power of the node that is harmed, and lets it boot when the test ends, if it is still off.
func cut(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if suite.Node(harmed) == nil {
			if err := suite.Boot(ctx, harmed); err != nil {
				t.Error(err)
			}
		}
		_, _ = suite.Kubectl(ctx, "taint", "node", harmed, "node.kubernetes.io/out-of-service-") // it may have none
		if err := suite.WaitFor(ctx, "node/"+harmed, "condition=Ready"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, suite.PowerOff(t.Context(), harmed))
}

// waitWatchPeriod waits as long as nothing may start in place of a guest that may live.
func waitWatchPeriod(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(watchPeriod):
	}
}

// stays looks for a while whether the instance of a VM stays Unknown, with its one pod.
func stays(t *testing.T, name, pod string) {
	t.Helper()
	waitWatchPeriod(t)
	if phase := vmiField(t, name, ".status.phase"); phase != "Unknown" {
		t.Errorf("of a lost node the instance %s is %s", name, phase)
	}
	if now := kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name"); now != pod {
		t.Errorf("of a lost node %s has the pods %q, before: %q", name, now, pod)
	}
}

// clean waits until nothing of any VM is left on the node that was harmed, and wants libvirtd to have none of its
// folders.
func clean(t *testing.T) {
	t.Helper()
	cleanNode(t, harmed)
	state := filepath.Join(suite.Node(harmed).Dir(), "libvirt", "qemu")
	for _, parent := range []string{"", "channel/target", "ram"} {
		left, err := filepath.Glob(filepath.Join(state, parent, "*virt-launche*")) // libvirtd cuts names
		assert.NilError(t, err)
		if len(left) > 0 {
			t.Errorf("%s has %q", harmed, left)
		}
	}
}

// cleanNode waits until nothing of any VM is left on a node.
func cleanNode(t *testing.T, name string) {
	t.Helper()
	n := suite.Node(name)
	wait.Success(t, "a node without VMs", func(ctx context.Context) error {
		containers, err := n.Crictl(ctx, "ps", "--all", "--quiet", "--label=io.kubernetes.container.name=compute")
		if err != nil {
			return err
		}
		domains, err := n.Output(ctx, "virsh", "list", "--all", "--name")
		if err != nil {
			return err
		}
		folders, err := os.ReadDir(filepath.Join(n.Dir(), "nodevirt", "containers"))
		if err != nil {
			return err
		}
		if strings.TrimSpace(containers+domains) != "" || len(folders) > 0 {
			return fmt.Errorf("containers %q, domains %q, %d folders of containers", containers, domains, len(folders))
		}
		return nil
	})
}

// away kills the kubelet of the node that is harmed, and has it back when the test ends or back is called.
func away(t *testing.T) (back func(context.Context) error) {
	t.Helper()
	n, returned := suite.Node(harmed), false
	back = func(ctx context.Context) error {
		if returned {
			return nil
		}
		returned = true
		return errors.Join(n.Resume(ctx, cluster.Kubelet), suite.WaitFor(ctx, "node/"+harmed, "condition=Ready"))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if err := back(ctx); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, n.Kill(t.Context(), cluster.Kubelet, 9))
	return back
}
