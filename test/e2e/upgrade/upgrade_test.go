//go:build upgrade

package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// The nodes in the order in which they change.
const first, second = "node-1", "node-2"

// step is a change of a cluster with running VMs.
type step struct {
	name string
	do   func(*testing.T)
	node string // where a new VM starts
}

// TestUpgrade takes a cluster from the older version to this checkout's and back, a part at a time. After each
// step the VMs of all steps before still run in the same processes, with their whole consoles, and a new one
// starts and stops. While the nodes differ, a VM migrates from the older to the newer. A VM of the older version
// takes an edit without a restart.
func TestUpgrade(t *testing.T) {
	shims(suite.old, first, second)(t)
	deploys(suite.old)(t)
	stays := []*running{start(t, "first", first), start(t, "second", second)}
	steps(t, stays, []step{
		{"controller", deploys(suite.today), first},
		{"shim-1", shims(suite.today, first), first},
		{"migration", func(t *testing.T) { stays[1] = migrated(t, stays[1], first) }, first},
		{"shim-2", shims(suite.today, second), second},
		{"edit", func(t *testing.T) { stays[0].relinked(t) }, first},
		{"controller-back", deploys(suite.old), second},
		{"shims-back", shims(suite.old, first, second), first},
		{"all", func(t *testing.T) { deploys(suite.today)(t); shims(suite.today, first, second)(t) }, second},
	})
	today := suite.today.release()
	assert.NilError(t, today.Remove(t.Context(), suite.Cluster))
	assert.NilError(t, today.RemoveCRDs(t.Context(), suite.Cluster))
}

// steps changes the cluster, and looks after its VMs, which it removes at the end.
func steps(t *testing.T, stays []*running, all []step) {
	t.Helper()
	for _, step := range all {
		// Each step needs those before.
		if !t.Run(step.name, func(t *testing.T) {
			step.do(t)
			for _, vm := range stays {
				vm.same(t)
			}
			remove(t, start(t, step.name, step.node).name)
		}) {
			t.FailNow()
		}
	}
	for _, vm := range stays {
		remove(t, vm.name)
	}
}

// deploys replaces the cluster's part.
func deploys(v version) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		assert.NilError(t, suite.DeployRelease(t.Context(), v.release()))
	}
}

// shims replaces nodes' programs and restarts their shims, as the package does.
func shims(v version, nodes ...string) func(*testing.T) {
	return func(t *testing.T) {
		assert.NilError(t, v.place())
		for _, name := range nodes {
			assert.NilError(t, suite.Node(name).Restart(t.Context(), node.Shim))
			assert.NilError(t, suite.WaitFor(t.Context(), "node/"+name, "condition=Ready"))
		}
	}
}

// running is a VM whose guest has answered.
type running struct {
	name, uid string // its VMI's
	pod, boot string
	console   string
}

// start makes a VM on a node, and waits until its guest answers.
func start(t *testing.T, name, node string) *running {
	t.Helper()
	text, err := json.Marshal(object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"affinity": prefer(node),
			"domain": object{
				"memory": object{"guest": "96Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}, "state": "up"}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.image}}},
		}}},
	})
	assert.NilError(t, err)
	assert.NilError(t, suite.Apply(t.Context(), string(text)))
	vm := &running{name: name}
	wait.Success(t, "an answer of "+name, func(ctx context.Context) (err error) { *vm, err = look(ctx, name); return err })
	if at := of(t, "pod/"+vm.pod, ".spec.nodeName"); at != node {
		t.Fatalf("%s runs on %s, want %s", name, at, node)
	}
	return vm
}

// prefer chooses a node, and leaves migrations another.
func prefer(node string) object {
	return object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
		"weight": 100,
		"preference": object{"matchExpressions": []object{
			{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}},
		}},
	}}}}
}

// look asks the guest of a VM which boot it is of.
func look(ctx context.Context, name string) (vm running, err error) {
	out, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.metadata.uid} {.status.phase} {.status.nodeName}")
	if err != nil {
		return vm, err
	}
	about := strings.Fields(out)
	if len(about) < 3 || about[1] != "Running" {
		return vm, fmt.Errorf("%s is %q", name, out)
	}
	pod, err := suite.Kubectl(ctx, "get", "pods", "--selector=vm.kubevirt.io/name="+name,
		"--field-selector=status.phase=Running,spec.nodeName="+about[2], "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil || len(strings.Fields(pod)) != 1 {
		return vm, errors.Join(fmt.Errorf("pods of %s: %q", name, pod), err)
	}
	boot, err := suite.Kubectl(ctx, "exec", pod, "--", "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return vm, err
	}
	console, err := suite.Kubectl(ctx, "logs", pod)
	return running{name: name, uid: about[0], pod: pod, boot: boot, console: console}, err
}

// same checks that a VM is the one that it was, and that its console lost nothing.
func (vm *running) same(t *testing.T) {
	t.Helper()
	var now running
	wait.Success(t, "an answer of "+vm.name, func(ctx context.Context) (err error) { now, err = look(ctx, vm.name); return err })
	if now.uid != vm.uid || now.pod != vm.pod || now.boot != vm.boot {
		t.Errorf("%s: uid %s, pod %s, boot %s; before uid %s, pod %s, boot %s",
			vm.name, now.uid, now.pod, now.boot, vm.uid, vm.pod, vm.boot)
	}
	if !strings.HasPrefix(now.console, vm.console) {
		t.Errorf("the console of %s was %q, and is %q", vm.name, vm.console, now.console)
	}
	if restarts := of(t, "pod/"+vm.pod, ".status.containerStatuses[0].restartCount"); restarts != "0" {
		t.Errorf("restarts of %s: %s", vm.name, restarts)
	}
	if required := of(t, "vm/"+vm.name, `.status.conditions[?(@.type=="RestartRequired")].message`); required != "" {
		t.Errorf("%s must restart: %s", vm.name, required)
	}
	vm.console = now.console
}

// relinked takes the link from the VM's card and restores it, by edits of the VM.
func (vm *running) relinked(t *testing.T) {
	t.Helper()
	for _, link := range []struct{ state, carrier string }{{"down", "0"}, {"up", "1"}} {
		kubectl(t, "patch", "vm", vm.name, "--type=json", "-p",
			`[{"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/0/state", "value": "`+link.state+`"}]`)
		wait.Until(t, "the guest's link is "+link.state, func() bool {
			return kubectl(t, "exec", vm.pod, "--", "cat", "/sys/class/net/eth0/carrier") == link.carrier
		})
	}
}

// migrated moves a VM to a node, and returns it there.
func migrated(t *testing.T, vm *running, to string) *running {
	t.Helper()
	const name = "between-versions"
	assert.NilError(t, suite.Apply(t.Context(), fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {name: %s}
spec: {vmiName: %s}
`, name, vm.name)))
	var phase string
	wait.Until(t, "the migration's end", func() bool {
		phase = of(t, "vmim/"+name, ".status.phase")
		return phase == "Succeeded" || phase == "Failed"
	})
	if phase != "Succeeded" {
		t.Fatalf("the migration %s: %s", phase, of(t, "vmi/"+vm.name, ".status.migrationState"))
	}
	var now running
	wait.Success(t, "an answer of "+vm.name, func(ctx context.Context) (err error) { now, err = look(ctx, vm.name); return err })
	if at := of(t, "pod/"+now.pod, ".spec.nodeName"); at != to || now.boot != vm.boot || now.uid != vm.uid {
		t.Errorf("%s is %+v on %s; before: %+v", vm.name, now, at, vm)
	}
	return &now
}

// remove deletes a VM, and waits until its pods are gone.
func remove(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "delete", "vm", name)
	wait.Until(t, "the end of the pods of "+name, func() bool {
		return kubectl(t, "get", "pods", "--selector=vm.kubevirt.io/name="+name, "-o", "name") == ""
	})
}

func of(t *testing.T, object, path string) string {
	t.Helper()
	return kubectl(t, "get", object, "-o", "jsonpath={"+path+"}")
}
