package vmspec

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckContainer(t *testing.T) {
	mounts := func(paths ...string) *runtimeapi.ContainerConfig {
		c := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
		for _, p := range paths {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: p})
		}
		return c
	}
	kubelets := mounts("/etc/hosts", "/dev/termination-log", "/var/run/secrets/kubernetes.io/serviceaccount")
	if err := checkContainer(kubelets); err != nil {
		t.Errorf("the kubelet's own mounts are refused: %v", err)
	}
	asked := mounts("/data")
	asked.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/block"}}
	asked.Args = []string{"sleep"}
	const want = `container vm: volume mounted at /data: volumes are not supported in a VM yet; remove it
container vm: devices: devices and block volumes are not supported in a VM yet; remove them
container vm: command and args: a VM runs what its disk boots; remove them`
	if err := checkContainer(asked); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
