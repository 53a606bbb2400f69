package lifecycle_test

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const dedicatedVMI = `{"domain": {"cpu": {"cores": 2, "dedicatedCpuPlacement": true}, "devices": {"disks": [{"name": "root"}]}}, ` + restOfVMI

// TestPin: a VM's threads are placed at its start and when its processors change. Other VMs' are not.
func TestPin(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wantPins := func(id, want string) {
			t.Helper()
			if got := fmt.Sprint(n.libvirt.Pins(n.rec(t, id).Domain.UUID).VCPUs); got != want {
				t.Errorf("pins %s, want %s", got, want)
			}
		}
		cpus := func(list string) *runtimeapi.LinuxContainerResources {
			return &runtimeapi.LinuxContainerResources{CpusetCpus: list}
		}
		c := request(0)
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: dedicatedVMI})
		_, err := n.Create(t.Context(), pod, c)
		wantError(t, err, "the kubelet assigned no processors")
		c.Linux.Resources.CpusetCpus = "0-1"
		id, err := n.Create(t.Context(), pod, c)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		wantPins(id, "[{0 0 0} {1 1 0}]")
		must(t, n.Update(t.Context(), id, cpus("1-2")))
		wantPins(id, "[{1 1 0} {2 2 0}]")
		wantError(t, n.Update(t.Context(), id, cpus("2")), "the VM needs 2")
		wantPins(id, "[{1 1 0} {2 2 0}]")
		n.script.Fail("Libvirt.Pin", domain.ErrUnavailable)
		wantError(t, n.Update(t.Context(), id, cpus("0-1")), domain.ErrUnavailable.Error())
		if got := n.rec(t, id).Resources.Value.GetCpusetCpus(); got != "1-2" {
			t.Errorf("recorded %s after a failure", got)
		}

		other := n.started(t, "other")
		must(t, n.Update(t.Context(), other, cpus("1")))
		wantPins(other, "[]")
	})
}
