//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/test/wait"
)

// online has the guest use the vCPUs and the memory that it got, and prints how much it then has.
const online = `for f in /sys/devices/system/cpu/cpu*/online; do echo 1 >$f; done
for f in /sys/devices/system/memory/memory*/state; do grep -q offline $f && echo online >$f; done
echo $(nproc) $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)`

// scaledInPlace patches the resources of a VM's pod as an autoscaler does: CPUs, and more MiB of memory.
func scaledInPlace(t *testing.T, pod, cpus string, more int64) {
	t.Helper()
	resources := func(kind string) resource.Quantity {
		t.Helper()
		q, err := resource.ParseQuantity(kubectl(t, "get", "pod", pod, "-o",
			`jsonpath={.spec.containers[?(@.name=="compute")].resources.`+kind+`.memory}`))
		assert.NilError(t, err)
		q.Add(*resource.NewQuantity(more<<20, resource.BinarySI))
		return q
	}
	limit, request := resources("limits"), resources("requests")
	kubectl(t, "patch", "pod", pod, "--subresource=resize", "-p", fmt.Sprintf(
		`{"spec": {"containers": [{"name": "compute", "resources": {"limits": {"cpu": %q, "memory": %q}, "requests": {"memory": %q}}}]}}`,
		cpus, &limit, &request))
}

// TestARunningVMIsResized: an edit of a VM gives its running guest vCPUs and memory, as an autoscaler's patch of its pod
// does, and an edit that no node has room for says so.
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
	has := func(cpus, more int, guest string) {
		t.Helper()
		wait.Success(t, "a larger guest", func(ctx context.Context) error {
			got, kib, err := size(ctx)
			if err == nil && (got != cpus || kib < before+(more<<10)*9/10) {
				err = fmt.Errorf("%d CPUs and %d KiB, before %d", got, kib, before)
			}
			return err
		})
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, fmt.Sprintf("jsonpath={.status.currentCPUTopology.sockets}=%d", cpus)))
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.memory.guestCurrent}="+guest))
	}
	resize(2, "640Mi")
	has(2, 256, "640Mi")
	scaledInPlace(t, pod, "3", 128)
	has(3, 384, "768Mi")
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
