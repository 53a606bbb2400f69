//go:build cluster

package dedicated

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*cluster.Cluster
	tiny    string // image with guest.Tiny as /disk
	busybox string
}

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 1, Kubelet: exclusive}, prepare))
}

// exclusive lets the kubelet assign whole CPUs. It keeps one for itself, since a part of one is rounded up, but the
// other pods' small requests fit beside a VM that has the rest.
func exclusive(c map[string]any) {
	c["cpuManagerPolicy"] = "static"
	c["cpuManagerReconcilePeriod"] = "2s"
	c["topologyManagerPolicy"] = "single-numa-node"
	c["kubeReserved"] = object{"cpu": "100m"}
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	if suite.busybox, err = c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if suite.tiny, err = clustertest.PushDisk(ctx, c, "tiny:1", guest.Tiny); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "label", "node", "node-1", "kubevirt.io/cpumanager=true")
	return err
}

// TestDedicatedCPUs: the VM's vCPU runs on a CPU that the kubelet gives to no other container,
// and a VM for which there are not enough CPUs waits and says why.
func TestDedicatedCPUs(t *testing.T) {
	apply(t, object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "other"},
		"spec": object{
			"terminationGracePeriodSeconds": 0,
			"containers":                    []object{{"name": "shell", "image": suite.busybox, "command": []string{"sleep", "1000000"}}},
		},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/other", "condition=Ready"))

	apply(t, vmi("pinned", object{"cores": 1, "dedicatedCpuPlacement": true}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/pinned", "jsonpath={.status.phase}=Running"))
	all := threads(t)
	own := all["CPU 0/"]
	if len(own) != 1 {
		t.Fatalf("the vCPU may run on the CPUs %v, want one", own)
	}
	for name, cpus := range all {
		if len(cpus) != 1 || cpus[0] != own[0] {
			t.Errorf("QEMU's threads %q may run on the CPUs %v, want %v", name, cpus, own)
		}
	}
	wait.Success(t, "a CPU of which no other container has a part", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "exec", "other", "--", "grep", "Cpus_allowed_list", "/proc/self/status")
		if err != nil {
			return err
		}
		cpus, err := allowed(out)
		for _, cpu := range cpus {
			if cpu == own[0] {
				err = fmt.Errorf("another pod may run on the VM's CPU %d", cpu)
			}
		}
		return err
	})

	// A CPU of the emulator's makes two, and the kubelet needs one.
	apply(t, vmi("isolated", object{"cores": 1, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/isolated", "condition=PodScheduled=False"))
	clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", "isolated", "Insufficient cpu")
	clustertest.Kubectl(t, suite.Cluster, "delete", "vmi", "isolated", "pinned")

	// The CPU is free again.
	apply(t, vmi("next", object{"cores": 1, "dedicatedCpuPlacement": true}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/next", "jsonpath={.status.phase}=Running"))
	if next := threads(t)["CPU 0/"]; len(next) != 1 || next[0] != own[0] {
		t.Errorf("the next VM's vCPU may run on the CPUs %v, want %v", next, own)
	}
	clustertest.Kubectl(t, suite.Cluster, "delete", "vmi/next", "pod/other")
}

// vmi is an instance of the tiny guest.
func vmi(name string, cpu object) object {
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
		"spec": object{
			"terminationGracePeriodSeconds": 0,
			"domain": object{
				"cpu": cpu, "memory": object{"guest": "96Mi"},
				"devices": object{"disks": []object{{"name": "boot", "disk": object{"bus": "virtio"}}}},
			},
			"volumes": []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
		},
	}
}

// threads returns the CPUs on which the threads of the node's only QEMU may run, by the threads'
// names; those of vCPUs are without their accelerator.
func threads(t *testing.T) map[string][]int {
	t.Helper()
	out, err := suite.Node("node-1").Output(t.Context(), "sh", "-c", `for p in /proc/[0-9]*; do
		case "$(readlink $p/exe)" in */qemu-system-x86_64)
			for t in $p/task/*; do echo "$(cat $t/comm)=$(grep Cpus_allowed_list $t/status)"; done;; esac
	done; true`)
	assert.NilError(t, err)
	all := map[string][]int{}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, "CPU ") {
			name = name[:strings.IndexByte(name, '/')+1]
		}
		all[name], err = allowed(rest)
		assert.NilError(t, err, line)
	}
	return all
}

// allowed reads a line of /proc/PID/status.
func allowed(line string) ([]int, error) {
	_, list, _ := strings.Cut(line, ":")
	return hostcpu.Parse(strings.TrimSpace(list))
}

func apply(t *testing.T, o object) {
	t.Helper()
	text, err := json.Marshal(o)
	assert.NilError(t, err)
	assert.NilError(t, suite.Apply(t.Context(), string(text)))
}
