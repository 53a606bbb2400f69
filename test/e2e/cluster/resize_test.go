//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// online has the guest use the vCPUs and the memory that it got, and prints how much it then has.
const online = `for f in /sys/devices/system/cpu/cpu*/online; do echo 1 >$f; done
for f in /sys/devices/system/memory/memory*/state; do grep -q offline $f && echo online >$f; done
echo $(nproc) $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)`

// TestARunningVMIsResized: an edit of a VM gives its running guest vCPUs and memory, and one that no node has room
// for says so.
func TestARunningVMIsResized(t *testing.T) {
	t.Parallel()
	name := made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "resized"},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"domain": object{
				"cpu":     object{"sockets": 1, "maxSockets": 4},
				"memory":  object{"guest": "384Mi", "maxGuest": "256Gi"},
				"devices": object{"disks": []object{{"name": "boot", "disk": object{"bus": "virtio"}}}},
			},
			"volumes": []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=AgentConnected"))
	pod := strings.TrimSpace(kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}"))
	size := func(ctx context.Context) (cpus, kib int, err error) {
		out, err := suite.Kubectl(ctx, "exec", pod, "--", "sh", "-c", online)
		if err == nil {
			_, err = fmt.Sscan(out, &cpus, &kib)
		}
		return cpus, kib, err
	}
	_, before, err := size(t.Context())
	assert.NilError(t, err)

	resize := func(sockets int, guest string) {
		t.Helper()
		kubectl(t, "patch", "vm", name, "--type=merge", "-p",
			fmt.Sprintf(`{"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": %d}, "memory": {"guest": %q}}}}}}`, sockets, guest))
	}
	resize(2, "640Mi")
	wait.Success(t, "a larger guest", func(ctx context.Context) error {
		cpus, kib, err := size(ctx)
		if err == nil && (cpus != 2 || kib < before+(256<<10)*9/10) {
			err = fmt.Errorf("%d CPUs and %d KiB, before %d", cpus, kib, before)
		}
		return err
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.currentCPUTopology.sockets}=2"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.memory.guestCurrent}=640Mi"))
	if c := kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].status}`); c != "" {
		t.Errorf("RestartRequired is %s", c)
	}

	resize(2, "256Gi")
	// Not by condition: the VM's observed generation is that of its instance.
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, `jsonpath={.status.conditions[?(@.type=="HotMemoryChange")].status}=False`))
	// The API server refuses it, or the kubelet.
	why := kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="HotMemoryChange")].reason}`)
	if why != "FailedResize" && why != "Infeasible" {
		t.Errorf("a guest for which the node has no room: %q", why)
	}
}
