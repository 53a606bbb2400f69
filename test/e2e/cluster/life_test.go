//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// A readiness probe in the guest follows a file there; kubectl shows it.
func TestExecProbesAskTheGuest(t *testing.T) {
	t.Parallel()
	pod := vmPod("probed", suite.agent)
	container(pod)["readinessProbe"] = object{
		"exec": object{"command": []string{"test", "!", "-e", "/tmp/sick"}}, "timeoutSeconds": 10, "periodSeconds": 1,
	}
	name := ready(t, pod)
	kubectl(t, "exec", name, "--", "touch", "/tmp/sick")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready=false"))
	kubectl(t, "exec", name, "--", "rm", "/tmp/sick")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready"))
}

// Deleted, a guest hears the power button and has its grace period.
func TestDeletionShutsTheGuestDown(t *testing.T) {
	t.Parallel()
	pod := vmPod("deleted", suite.tiny)
	pod["spec"].(object)["restartPolicy"] = "Never"
	// So that its last status can be read.
	pod["metadata"].(object)["finalizers"] = []string{"test.nodevirt.io/keep"}
	name := run(t, pod)
	t.Cleanup(func() {
		_, err := suite.Kubectl(context.WithoutCancel(t.Context()), "patch", "pod", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready"))
	// Its last word: a power button before that may not be heard.
	wait.Success(t, "the guest's boot", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "logs", name)
		if err == nil && !strings.Contains(out, "nodevirt guest: up") {
			err = fmt.Errorf("log: %q", out)
		}
		return err
	})
	kubectl(t, "delete", "pod", name, "--wait=false")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "jsonpath={.status.phase}=Succeeded"))
	var end struct {
		ExitCode  int
		Reason    string
		StartedAt time.Time
	}
	assert.NilError(t, json.Unmarshal([]byte(field(t, name, ".status.containerStatuses[0].state.terminated")), &end))
	if end.ExitCode != 0 || end.Reason != "Completed" || end.StartedAt.IsZero() {
		t.Errorf("the guest's end: %+v", end)
	}
}

// A guest that powers off by itself has completed; that of restartPolicy Always boots again.
func TestAGuestThatPowersOffIsRestarted(t *testing.T) {
	t.Parallel()
	name := ready(t, vmPod("restarted", suite.tiny))
	ip := field(t, name, ".status.podIP")
	first := answer(t, ip)
	off := func() error {
		_, err := ask(t.Context(), ip, "/cgi-bin/poweroff")
		return err
	}
	sent := off() // its answer may be lost, as the guest is off then
	wait.Success(t, "another boot", func(ctx context.Context) error {
		page, err := ask(ctx, ip, "/cgi-bin/info")
		if err != nil {
			return err
		}
		var i info
		if err := json.Unmarshal([]byte(page), &i); err != nil {
			return err
		}
		if i.BootID == first.BootID {
			// Not again if the guest has heard it: the next guest would hear the second press.
			if sent != nil {
				sent = off()
			}
			return errors.Join(errors.New("still the first"), sent)
		}
		return nil
	})
	// A guest may answer before the kubelet has reported it.
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "jsonpath={.status.containerStatuses[0].restartCount}=1"))
}

// The kubelet rotates a VM's log, and the console goes on in the new one.
func TestTheKubeletRotatesTheLog(t *testing.T) {
	t.Parallel()
	name := answering(t, vmPod("rotated", suite.agent))
	kubectl(t, "exec", name, "--", "sh", "-c", fmt.Sprintf("yes some words to fill a log with | head -c %d >/dev/ttyS0", 2*logSize))
	folder := filepath.Join(nodeOf(t, name).Dir(), "podlogs", "default_"+name+"_"+field(t, name, ".metadata.uid"), "c")
	wait.Success(t, "a rotated log", func(context.Context) error {
		entries, err := os.ReadDir(folder)
		if err == nil && len(entries) < 2 {
			err = fmt.Errorf("in %s: %v", folder, entries)
		}
		return err
	})
	wait.Success(t, "new lines in the new log", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "exec", name, "--", "sh", "-c", "echo after the rotation >/dev/ttyS0")
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, "0.log"))
		if err == nil && (!strings.Contains(string(text), "after the rotation") || len(text) > 2*logSize) {
			err = fmt.Errorf("%d bytes, without the line", len(text))
		}
		return err
	})
}

// What a guest writes to its disk counts as the container's ephemeral storage.
func TestAGuestThatWritesTooMuchIsEvicted(t *testing.T) {
	t.Parallel()
	pod := vmPod("evicted", suite.agent)
	pod["spec"].(object)["restartPolicy"] = "Never"
	container(pod)["resources"].(object)["limits"].(object)["ephemeral-storage"] = "10Mi"
	name := answering(t, pod)
	// The kubelet may not wait for its end.
	wrote, written := suite.Kubectl(t.Context(), "exec", name, "--", "sh", "-c",
		"dd if=/dev/urandom of=/dev/vda bs=1M seek=30 count=20 conv=fsync,notrunc")
	// Not its phase: an evicted pod whose container ends with code 0 is Failed or Succeeded, as it comes.
	wait.Success(t, "the kubelet's word on the eviction", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "events", "--field-selector=reason=Evicted,involvedObject.name="+name)
		if err == nil && !strings.Contains(out, "Pod ephemeral local storage usage exceeds") {
			err = errors.Join(fmt.Errorf("events: %q; written: %q", out, wrote), written)
		}
		return err
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "jsonpath={.status.containerStatuses[0].state.terminated.reason}"))
}

// answering runs a pod of TinyWithAgent and waits until its agent answers. Not by a probe: of one that fails
// each second there are so many events that the kubelet leaves out others of the pod.
func answering(t *testing.T, pod object) (name string) {
	t.Helper()
	name = ready(t, pod)
	wait.Success(t, "the agent's answer", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "exec", name, "--", "true")
		return err
	})
	return name
}

// A guest whose liveness probe fails is shut down, and its VM starts another instance.
func TestALivenessProbeRestartsAVM(t *testing.T) {
	t.Parallel()
	const name = "alive"
	machine := machineOf(name)
	spec := machine["spec"].(object)["template"].(object)["spec"].(object)
	spec["domain"].(object)["memory"] = object{"guest": "128Mi"}
	spec["volumes"] = []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}}
	spec["livenessProbe"] = object{
		"exec": object{"command": []string{"test", "!", "-e", "/tmp/sick"}}, "timeoutSeconds": 10, "periodSeconds": 2, "initialDelaySeconds": 20,
	}
	made(t, machine)
	inGuest(t, name, "touch /tmp/sick")
	first := vmiField(t, name, ".metadata.uid")
	wait.Success(t, "another instance", func(ctx context.Context) error {
		uid, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.metadata.uid}")
		if err == nil && uid == first {
			err = errors.New("it is the first one")
		}
		return err
	})
	assert.Equal(t, inGuest(t, name, "[ -e /tmp/sick ] || echo well"), "well")
}

// inGuest runs a line of shell in a VM's guest, once its agent is there.
func inGuest(t *testing.T, vm, line string) string {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+vm, "condition=AgentConnected"))
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+vm, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].metadata.name}")
	return strings.TrimSpace(kubectl(t, "exec", pod, "--", "sh", "-c", line))
}
