//go:build cluster

package nodes

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
)

// A drain waits for who says by a PodDisruptionBudget that a VM is needed. Let go, the guest hears the power
// button, shuts down in its grace period, and its VM runs on the other node.
func TestDrain(t *testing.T) {
	name, first := answering(t, vm("drained", rather(harmed)))
	if at := vmiField(t, name, ".status.nodeName"); at != harmed {
		t.Fatalf("it runs on %s", at)
	}
	budget := create(t, object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": name},
		"spec": object{"minAvailable": 1, "selector": object{"matchLabels": object{"app": name}}},
	})
	clustertest.Eventually(t, "a budget that allows none", func(ctx context.Context) error {
		allowed, err := suite.Kubectl(ctx, "get", "poddisruptionbudget", budget, "-o", "jsonpath={.status.expectedPods}/{.status.disruptionsAllowed}")
		if err == nil && allowed != "1/0" {
			err = fmt.Errorf("expected pods/allowed disruptions: %s", allowed)
		}
		return err
	})
	noScale(t, name)
	t.Cleanup(func() { undo(t, "uncordon", harmed) })
	if _, err := drain(t.Context(), "--timeout=5s"); err == nil || !strings.Contains(err.Error(), "would violate the pod's disruption budget") {
		t.Errorf("drained in spite of the budget: %v", err)
	}
	if got := answer(t, name, ""); got != first {
		t.Fatalf("the guest was booted anew: %s, before: %s", got, first)
	}

	console := follow(t, name)
	kubectl(t, "delete", "poddisruptionbudget", budget)
	_, err := drain(t.Context(), "--timeout="+clustertest.Patience.String())
	check(t, err)
	if log := console(); !strings.Contains(log, "nodevirt guest: poweroff") {
		t.Errorf("the guest did not say that it heard the power button:\n%s", log)
	}
	answer(t, name, first)
	if at := vmiField(t, name, ".status.nodeName"); at != steady {
		t.Errorf("it runs on %s, which is drained", at)
	}
	event(t, name, "was shut down: its pod was deleted: EvictionByEvictionAPI")
}

// noScale: a budget that is a part of how many there are is not to be had for VMs; it says so itself.
func noScale(t *testing.T, name string) {
	t.Helper()
	part := create(t, object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": name + "-part"},
		"spec": object{"maxUnavailable": 1, "selector": object{"matchLabels": object{"app": name}}},
	})
	waitFor(t, "poddisruptionbudget/"+part, "condition=DisruptionAllowed=False")
	kubectl(t, "delete", "poddisruptionbudget", part)
}

// drain moves all away from the node that is harmed.
func drain(ctx context.Context, more ...string) (string, error) {
	return suite.Kubectl(ctx, append([]string{"drain", harmed, "--ignore-daemonsets", "--delete-emptydir-data"}, more...)...)
}

// follow reads the console of a VM's guest from its first line; the result waits for its end.
func follow(t *testing.T, name string) (all func() string) {
	t.Helper()
	var text bytes.Buffer
	pod := kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name")
	cmd := suite.KubectlCommand(t.Context(), "logs", "--follow", pod)
	cmd.Stdout, cmd.Stderr = &text, &text
	check(t, cmd.Start())
	return func() string {
		check(t, cmd.Wait())
		return text.String()
	}
}
