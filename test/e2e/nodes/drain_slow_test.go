//go:build cluster && slow

package nodes

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

var vms = flag.Int("vms", 4, "number of VMs of TestDrainedNode")

// A drain of a node moves its VMs to the other one. While that is full they stay, and say why. No guest is
// booted again, and the node that returns gets none by itself.
func TestDrainedNode(t *testing.T) {
	whole(t)
	const group = "drained"
	var names []string
	boots := map[string]string{}
	// The scheduler weighs a VM's wish against how full a node is, so that many VMs would not all get theirs.
	t.Cleanup(func() { undo(t, "uncordon", steady) })
	kubectl(t, "cordon", steady)
	for i := range *vms {
		names = append(names, create(t, movable(fmt.Sprintf("%s-%d", group, i), group)))
	}
	for _, name := range names {
		boots[name] = answer(t, name, "")
		migratable(t, name)
		if at := vmiField(t, name, ".status.nodeName"); at != harmed {
			t.Fatalf("%s runs on %s", name, at)
		}
	}
	kubectl(t, "uncordon", steady)
	// The guests never stop, so the budget must not keep them, nor be broken.
	create(t, object{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": object{"name": group},
		"spec": object{"minAvailable": *vms, "selector": object{"matchLabels": object{"group": group}}},
	})
	watchRunning(t)
	moves := followMoves(t)
	t.Cleanup(func() { undo(t, "uncordon", harmed) })

	full := fill(t)
	_, err := suite.Kubectl(t.Context(), "drain", harmed, "--pod-selector=group="+group, "--delete-emptydir-data", "--timeout=30s")
	for _, want := range []string{`Eviction triggered evacuation of VMI "default/`, `Evacuation in progress: `, "will retry after 5s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a drain without room does not say %q: %v", want, err)
		}
	}
	wait.Success(t, "an event that there is no room", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "events", "--field-selector=reason=migrationTargetPodUnschedulable", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "Insufficient memory") {
			err = fmt.Errorf("events: %s", out)
		}
		return err
	})
	for _, name := range names {
		waitFor(t, "vmi/"+name, "condition=EvictionRequested=True")
		if got := answer(t, name, ""); got != boots[name] {
			t.Errorf("without room, %s was booted again", name)
		}
		if at := vmiField(t, name, ".status.nodeName"); at != harmed {
			t.Errorf("without room, %s runs on %s", name, at)
		}
	}
	refused(t, names[0])

	kubectl(t, "delete", "pod", full)
	begun := time.Now()
	kubectl(t, "drain", harmed, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+(2*wait.Patience).String())
	t.Logf("the drain took %s with room", time.Since(begun))
	for _, name := range names {
		settledAt(t, name, boots[name], steady)
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.migrationState.completed}=true"))
		clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", name, "migrated to node "+steady)
		if c := vmiField(t, name, `.status.conditions[?(@.type=="EvictionRequested")]`); c != "" {
			t.Errorf("%s has left, and says %s", name, c)
		}
	}
	clean(t)

	made, succeeded, most := moves.count()
	t.Logf("%d migrations of %d VMs, at most %d at once", made, *vms, most)
	if succeeded != *vms {
		t.Errorf("%d migrations succeeded of %d VMs", succeeded, *vms)
	}
	kubectl(t, "uncordon", harmed)
	waitWatchPeriod(t)
	if now, _, _ := moves.count(); now != made {
		t.Errorf("the node that returned made %d VMs move", now-made)
	}
	for _, name := range names {
		settledAt(t, name, boots[name], steady)
	}
	moves.stop()
}

// fill takes the memory that is left on the steady node, and returns the name of the pod that has it.
func fill(t *testing.T) string {
	t.Helper()
	pod := asker("full", steady)
	delete(pod["spec"].(object), "nodeName") // the scheduler must count it
	pod["spec"].(object)["nodeSelector"] = object{"kubernetes.io/hostname": steady}
	container := pod["spec"].(object)["containers"].([]object)[0]
	container["resources"] = object{"requests": object{"memory": clustertest.Free(t, suite.Cluster, steady).String()}}
	name := create(t, pod)
	waitFor(t, "pod/"+name, "condition=Ready")
	return name
}

// refused checks that the API server answers an eviction of a VM that is asked to leave, as it answers one
// that a budget forbids: clients try again.
func refused(t *testing.T, name string) {
	t.Helper()
	pods := strings.Fields(kubectl(t, "get", "pods", "--selector=app="+name, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}"))
	if len(pods) != 1 {
		t.Fatalf("%s has the pods %v", name, pods)
	}
	err := evict(t.Context(), pods[0])
	want := fmt.Sprintf("Evacuation in progress: Eviction triggered evacuation of VMI \"default/%s\"", name)
	if err == nil || !strings.Contains(err.Error(), "TooManyRequests") || !strings.Contains(err.Error(), want) {
		t.Errorf("a second eviction: %v", err)
	}
}
