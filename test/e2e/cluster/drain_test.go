//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The nodes: what is drained, cordoned or filled is the second.
const (
	steady = "node-1"
	harmed = "node-2"
)

// byName is the label that the pod of an instance has by its name.
const byName = "vm.kubevirt.io/name"

// A drain waits while a PodDisruptionBudget protects the VM. Once evicted, the guest gets the power button,
// shuts down in its grace period, and its VM runs on the other node. Only this VM is drained: the other
// tests share the node, which is cordoned for the while.
func TestDrain(t *testing.T) {
	const name = "drained"
	made(t, machine(strangersVMI(name, func(spec, _, _ object) {
		spec["terminationGracePeriodSeconds"] = 60
		spec["affinity"] = rather(harmed)
	})))
	first := answerOf(t, name, "")
	if at := vmiField(t, name, ".status.nodeName"); at != harmed {
		t.Fatalf("it runs on %s", at)
	}
	budget(t, name, object{"minAvailable": 1})
	wait.Success(t, "a budget that allows none", func(ctx context.Context) error {
		allowed, err := suite.Kubectl(ctx, "get", "poddisruptionbudget", name, "-o", "jsonpath={.status.expectedPods}/{.status.disruptionsAllowed}")
		if err == nil && allowed != "1/0" {
			err = fmt.Errorf("expected pods/allowed disruptions: %s", allowed)
		}
		return err
	})
	noScale(t, name)
	uncordon(t)
	wait.Success(t, "that the budget is heeded", func(ctx context.Context) error {
		// For no longer, as it waits until it may. A busy API server may not even have refused it by then.
		out, err := drain(ctx, name, "--timeout=5s")
		if err != nil && strings.Contains(err.Error(), "would violate the pod's disruption budget") {
			return nil
		}
		return errors.Join(fmt.Errorf("drain: %s", out), err)
	})
	if got := answerOf(t, name, ""); got != first {
		t.Fatalf("the guest was booted again: %s, before: %s", got, first)
	}

	console := start(t, "logs", "--follow", kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "name"))
	console.Until("", "") // a first line
	kubectl(t, "delete", "poddisruptionbudget", name)
	_, err := drain(t.Context(), name, "--timeout="+wait.Patience.String())
	assert.NilError(t, err)
	console.Until("", "nodevirt guest: poweroff") // it heard the power button
	answerOf(t, name, first)
	if at := vmiField(t, name, ".status.nodeName"); at != steady {
		t.Errorf("it runs on %s, which is drained", at)
	}
	clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", name, "was shut down: its pod was deleted: EvictionByEvictionAPI")
}

// budget makes a PodDisruptionBudget of a VM's pod, under the VM's name.
func budget(t *testing.T, name string, spec object) {
	t.Helper()
	spec["selector"] = object{"matchLabels": object{byName: name}}
	made(t, object{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": name}, "spec": spec})
}

// noScale: a budget that is a part of how many there are is not to be had for VMs; it says so itself.
func noScale(t *testing.T, name string) {
	t.Helper()
	part := name + "-part"
	made(t, object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": part},
		"spec": object{"maxUnavailable": 1, "selector": object{"matchLabels": object{byName: name}}},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "poddisruptionbudget/"+part, "condition=DisruptionAllowed=False"))
	kubectl(t, "delete", "poddisruptionbudget", part)
}

// drain moves a VM away from the node that is harmed.
func drain(ctx context.Context, name string, more ...string) (string, error) {
	return suite.Kubectl(ctx, append([]string{"drain", harmed, "--pod-selector=" + byName + "=" + name, "--delete-emptydir-data"}, more...)...)
}

// uncordon has the node that is harmed take pods again when the test ends, and waits until it does.
func uncordon(t *testing.T) {
	undo(t, func(ctx context.Context) error {
		if _, err := suite.Kubectl(ctx, "uncordon", harmed); err != nil {
			return err
		}
		return untainted(ctx)
	})
}

// untainted waits until the node that is harmed has no taint: Kubernetes takes off its own a moment later.
func untainted(ctx context.Context) error {
	return wait.Do(ctx, func(ctx context.Context) error {
		taints, err := suite.Kubectl(ctx, "get", "node", harmed, "-o", "jsonpath={.spec.taints}")
		if err == nil && taints != "" {
			err = fmt.Errorf("%s has the taints %s", harmed, taints)
		}
		return err
	})
}
