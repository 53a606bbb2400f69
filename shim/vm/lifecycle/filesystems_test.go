package lifecycle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// addServed makes a VM that mounts a PVC and a ConfigMap.
func addServed(t *testing.T, n *node) (id string) {
	t.Helper()
	pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
			"filesystems": [{"name": "data", "virtiofs": {}}, {"name": "config", "virtiofs": {}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}, {"name": "config", "configMap": {"name": "a"}},
			{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]}`})
	c := request(0)
	c.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 107}}
	c.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/volumes/config", HostPath: "/volumes/kubernetes.io~configmap/config", Readonly: true},
		{ContainerPath: "/volumes/data", HostPath: "/srv/data"},
	}
	id, err := n.Create(t.Context(), pod, c)
	must(t, err)
	must(t, n.Start(t.Context(), id))
	return id
}

// TestFilesystems: they outlive the shim, but not the VM.
func TestFilesystems(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := addServed(t, n)
		o, folders := n.filesystems.Of(id)
		if want := (virtiofs.Owner{ID: id, Client: n.rec(t, id).Domain.UID, User: 107}); o != want {
			t.Errorf("their owner is %+v, want %+v", o, want)
		}
		want := []virtiofs.Folder{{Path: "/srv/data"}, {Path: "/volumes/kubernetes.io~configmap/config", ReadOnly: true}}
		if diff := cmp.Diff(want, folders); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		n.end()
		n.join()
		must(t, n.Recover(t.Context()))
		n.run(t)
		if len(n.filesystems.Left()) != 1 {
			t.Error("the shim's restart ended them")
		}
		must(t, n.Stop(t.Context(), id, 0))
		n.wantEnd(t, id, 137, "Error", "the VM was powered off")
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestFilesystemEnds: the VM is stopped, and says why.
func TestFilesystemEnds(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := addServed(t, n)
		n.filesystems.Kill(id)
		time.Sleep(time.Second)
		if len(n.libvirt.Left()) == 0 {
			t.Error("the VM had no time to end by itself")
		}
		time.Sleep(time.Minute)
		n.wantEnd(t, id, 137, "Error", "virtiofsd ended unexpectedly, and the VM was stopped")
		if n.log.count("virtiofsd ended: the VM is stopped") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}
