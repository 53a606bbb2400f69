//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/wait"
)

// conditionField is a part of one of nodevirt's conditions of a pod.
func conditionField(t *testing.T, name, kind, field string) string {
	t.Helper()
	return kubectl(t, "get", "pod", name, "-o", fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].%s}`, kind, field))
}

// virsh runs virsh on the node of a pod's machine, and returns what it says.
func virsh(t *testing.T, command, pod string) string {
	t.Helper()
	on := nodeOf(t, pod)
	domains, err := on.Output(t.Context(), "virsh", "list", "--all", "--name")
	assert.NilError(t, err)
	for domain := range strings.FieldsSeq(domains) {
		if strings.HasPrefix(domain, "default_"+pod+"_") {
			out, err := on.Output(t.Context(), "virsh", command, domain)
			assert.NilError(t, err)
			return out
		}
	}
	t.Fatalf("no machine of pod %s among %q", pod, domains)
	return ""
}

// The node reports what it knows of the VM in the pod's status, with its own credential.
func TestConditionsDescribeTheGuest(t *testing.T) {
	t.Parallel()
	for kind, status := range map[string]string{
		condition.VMReady: "true", condition.AgentConnected: "true", condition.GuestInfo: "true",
		condition.Paused: "false", condition.LiveMigratable: "false",
	} {
		assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+vm, "condition="+kind+"="+status))
	}
	wait.Success(t, "the guest's name", func(ctx context.Context) error {
		message, err := suite.Kubectl(ctx, "get", "pod", vm, "-o",
			fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].message}`, condition.GuestInfo))
		if err != nil {
			return err
		}
		g, err := condition.Parse(message)
		if err == nil && (g.Hostname != vm || g.AgentVersion == "" || g.OS == nil || g.OS.Kernel == "") {
			err = fmt.Errorf("guest: %s", message)
		}
		return err
	})
}

// A VM that is paused is not ready, and one that ended says how.
func TestConditionsFollowTheVM(t *testing.T) {
	t.Parallel()
	pod := vmPod("followed", suite.tiny)
	pod["spec"].(object)["restartPolicy"] = "Never"
	name := ready(t, pod)
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.VMReady))
	virsh(t, "suspend", name)
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.Paused))
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.VMReady+"=false"))
	if got := conditionField(t, name, condition.Paused, "reason"); got != condition.ReasonPausedByUser {
		t.Errorf("reason of a pause: %q", got)
	}
	virsh(t, "resume", name)
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.Paused+"=false"))
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.VMReady))
	virsh(t, "destroy", name)
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition="+condition.VMReady+"=false"))
	if got := conditionField(t, name, condition.VMReady, "message"); got != "the VM was powered off" {
		t.Errorf("message of an end: %q", got)
	}
}
