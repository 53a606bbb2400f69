package e2e

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestASidecarIsAnOrdinaryContainer(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.tiny).start()
	sidecar := p.sidecar("sh", "-c", "echo beside the guest; exec sleep 1000000").start()
	vm.up()

	out := crictl(t, "ps", "--pod", p.id, "--quiet")
	if ids := strings.Fields(out); len(ids) != 2 || !slices.Contains(ids, vm.id) || !slices.Contains(ids, sidecar.id) {
		t.Errorf("crictl ps: %q; want %s and %s", ids, vm.id, sidecar.id)
	}
	if got := crictl(t, "exec", sidecar.id, "hostname"); strings.TrimSpace(got) != p.config.Hostname {
		t.Errorf("host name in the sidecar: %q", got)
	}
	if got := crictl(t, "logs", sidecar.id); got != "beside the guest\n" {
		t.Errorf("the sidecar's log: %q", got)
	}
	if s := sidecar.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the sidecar is %s", s.State)
	}
	// Its end is none of the VM's business.
	sidecar.stop(0)
	sidecar.removeIt()
	if s := vm.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the sidecar's end the VM is %s", s.State)
	}
	if got := vm.page("/"); !strings.HasPrefix(got, "ip="+p.ip()) {
		t.Errorf("after the sidecar's end the guest says %q", got)
	}
}

func TestAPodTakesItsContainersAlong(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.halt).start()
	sidecar := p.sidecar("sleep", "1000000").start()
	_, err := suite.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	assert.NilError(t, err)
	for _, c := range []*container{vm, sidecar} {
		if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 {
			t.Errorf("after the pod's stop container %s is %s, code %d", c.config.Metadata.Name, s.State, s.ExitCode)
		}
	}
	if s := p.status(); s.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || s.RuntimeHandler != "vm" {
		t.Errorf("the pod is %s, of handler %q", s.State, s.RuntimeHandler)
	}
	for range 2 {
		_, err = suite.cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		assert.NilError(t, err)
	}
	vm.wantGone()
	sidecar.wantGone()
	pods, err := suite.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{Id: p.id},
	})
	assert.NilError(t, err)
	if len(pods.Items) > 0 {
		t.Errorf("a removed pod is listed: %v", pods.Items)
	}
}

func TestRemovalOfAPodWithARunningVM(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.halt).start()
	sidecar := p.sidecar("sleep", "1000000").start()
	_, err := suite.cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	assert.NilError(t, err)
	vm.wantGone()
	sidecar.wantGone()
}
