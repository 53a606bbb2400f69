//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// autoscaled is a replica set and its autoscaler, which wants its guests to use a tenth of a CPU each.
const (
	autoscaled    = "autoscaled"
	autoscaledMax = 3
)

// A HorizontalPodAutoscaler scales a replica set by what its guests use, as metrics-server reports: up when
// the one guest is busy, and down again when that one has gone. It runs alone, for guests that boot are busy,
// too.
func TestAnAutoscalerScalesAReplicaSet(t *testing.T) {
	undo(t, suite.StopMetrics)
	assert.NilError(t, suite.StartMetrics(t.Context()))
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "hpa,vmirs,vmi")
			t.Log(about)
		}
		_, err := suite.Kubectl(ctx, "delete", "hpa,vmirs", autoscaled, "--ignore-not-found", "--cascade=foreground")
		return err
	})
	labels := object{"app": autoscaled}
	spec := strangersVMI("", func(_, domain, _ object) {
		domain["resources"] = object{"requests": object{"cpu": "100m"}}
	})["spec"]
	assert.NilError(t, create(t.Context(), object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
		"metadata": object{"name": autoscaled, "labels": labels},
		"spec": object{
			"selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": spec},
		},
	}))
	busy := guestsOf(t, 1)[0]
	wait.Success(t, "a guest that is idle, by kubectl top", func(ctx context.Context) error {
		return uses(ctx, func(milliCPU int) bool { return milliCPU < 80 })
	})
	kubectl(t, "autoscale", "vmirs", autoscaled, "--min=1", fmt.Sprintf("--max=%d", autoscaledMax), "--cpu=100%")
	// Of itself it waits for five minutes.
	kubectl(t, "patch", "hpa", autoscaled, "--type=merge", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "hpa/"+autoscaled, "condition=ScalingActive"))
	if got := kubectl(t, "get", "hpa", autoscaled, "-o", "jsonpath={.status.desiredReplicas}"); got != "1" {
		t.Errorf("of an idle guest the autoscaler wants %s", got)
	}

	const hour = "/cgi-bin/burn?3600"
	asked(t, vmiField(t, busy, ".status.interfaces[0].ipAddress"), hour, "burning")
	assert.NilError(t, suite.WaitFor(t.Context(), "hpa/"+autoscaled, fmt.Sprintf("jsonpath={.status.desiredReplicas}=%d", autoscaledMax)))
	if all := guestsOf(t, autoscaledMax); !slices.Contains(all, busy) {
		t.Errorf("the busy %s is not among %s", busy, all)
	}
	clustertest.Event(t, suite.Cluster, "HorizontalPodAutoscaler", autoscaled, "New size: 3; reason: cpu resource utilization (percentage of request) above target")

	kubectl(t, "delete", "vmi", busy)
	assert.NilError(t, suite.WaitFor(t.Context(), "hpa/"+autoscaled, "jsonpath={.status.desiredReplicas}=1"))
	guestsOf(t, 1)
}

// guestsOf waits for so many instances of the replica set, and an answer of each.
func guestsOf(t *testing.T, n int) (names []string) {
	t.Helper()
	wait.Success(t, fmt.Sprintf("%d instances", n), func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmi", "--selector=app="+autoscaled, "-o", "jsonpath={.items[*].metadata.name}")
		if names = strings.Fields(out); err == nil && len(names) != n {
			err = fmt.Errorf("there are %q", names)
		}
		return err
	})
	for _, name := range names {
		answerOf(t, name, "")
	}
	return names
}

// uses returns an error unless kubectl top has such figures of each guest.
func uses(ctx context.Context, like func(milliCPU int) bool) error {
	out, err := suite.Kubectl(ctx, "top", "pods", "--selector=app="+autoscaled, "--no-headers")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line) // name, CPU, memory
		if len(fields) != 3 {
			return fmt.Errorf("kubectl top: %q", out)
		}
		milliCPU, err := strconv.Atoi(strings.TrimSuffix(fields[1], "m"))
		if err != nil || !like(milliCPU) {
			return fmt.Errorf("kubectl top: %q", out)
		}
	}
	return nil
}
