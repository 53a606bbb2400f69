//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// examples is the folder of manifests that users are pointed to.
func examples(t *testing.T) string {
	t.Helper()
	top, err := checkout()
	assert.NilError(t, err)
	return filepath.Join(top, "examples")
}

// The API server, and admission, take each example as it is. Other tests may have changed theirs meanwhile,
// hence the force.
func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(examples(t), "*.yaml"))
	assert.NilError(t, err)
	if len(paths) == 0 {
		t.Fatal("no examples")
	}
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "sandbox") {
			continue // of kinds that TestTheExamplesOfSandboxes adds
		}
		_, err := suite.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", path)
		if filepath.Base(path) == "migration.yaml" {
			assert.ErrorContains(t, err, `the VMI "default/movable" does not exist`)
			continue
		}
		assert.Check(t, err)
	}
}

// The example runs through its life: applied, stopped, started, deleted.
func TestAVirtualMachineLives(t *testing.T) {
	t.Parallel()
	const name = "example"
	manifest := filepath.Join(examples(t), "vm.yaml")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "get", "vm,vmi,pods", "-o", "wide")
			more, _ := suite.Kubectl(ctx, "describe", "vm,vmi,pods", "--selector=app="+name)
			t.Logf("%s\n%s", about, more)
		}
		if _, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", manifest); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "apply", "--server-side", "-f", manifest)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=Running"))
	first := answer(t, name)
	if first.Hostname != name {
		t.Errorf("host name: %q", first.Hostname)
	}

	runStrategy(t, name, "Halted")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=Stopped"))
	if out := kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name"); out != "" {
		t.Errorf("pods of a VM that is stopped: %q", out)
	}
	runStrategy(t, name, "Always")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	if second := answer(t, name); second.BootID == first.BootID {
		t.Errorf("the same boot after stop and start: %+v", second)
	}

	kubectl(t, "delete", "vm", name)
	for _, gone := range []string{"vmi", "pods"} {
		wait.Success(t, "no "+gone, func(ctx context.Context) error {
			out, err := suite.Kubectl(ctx, "get", gone, "-o", "name")
			if err == nil && strings.Contains(out, name) {
				err = fmt.Errorf("there are still %q", out)
			}
			return err
		})
	}
}

func runStrategy(t *testing.T, vm, strategy string) {
	t.Helper()
	kubectl(t, "patch", "vm", vm, "--type=merge", "-p", `{"spec":{"runStrategy":"`+strategy+`"}}`)
}

// What the guest's agent reports reaches the instance's status through the node.
func TestAnInstanceReportsItsGuest(t *testing.T) {
	t.Parallel()
	const name = "told"
	vmi := object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
		"spec": object{
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "bridge": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		},
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "get", "vmi,pods", "-o", "yaml")
			t.Log(about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vmi", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, create(t.Context(), vmi))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=AgentConnected"))
	var status struct {
		NodeName   string
		ActivePods map[string]string
		Interfaces []struct {
			IP string `json:"ipAddress"`
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status}")), &status))
	if !strings.HasPrefix(status.NodeName, "node-") || len(status.ActivePods) != 1 || len(status.Interfaces) != 1 {
		t.Fatalf("status: %+v", status)
	}
	if got := answer(t, status.Interfaces[0].IP); got.Hostname != name {
		t.Errorf("host name: %q", got.Hostname)
	}
}

// Admission, which runs in a pod, refuses by path at once.
func TestAWrongManifestIsRefusedByPath(t *testing.T) {
	t.Parallel()
	err := suite.Apply(t.Context(), `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: wrong}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      disks: [{name: boot, disk: {bus: virtio}}]
      watchdog: {name: dog, diag288: {action: reset}}
  volumes: [{name: other, containerDisk: {image: "some/disk:1"}}]
`)
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{"spec.domain.devices.watchdog.diag288", "spec.domain.devices.disks[0]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in %v", want, err)
		}
	}
}
