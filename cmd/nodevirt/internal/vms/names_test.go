package vms

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestChooseByVirtualMachine: users know the name of their VirtualMachine, and not that of its pod.
func TestChooseByVirtualMachine(t *testing.T) {
	v := running()
	v.Pod.Metadata.Name = "virt-launcher-shop-x7k2p"
	v.Pod.Annotations = map[string]string{annotationDomain: "shop"}
	other := running()
	other.Status = &runtimeapi.ContainerStatus{Id: strings.Repeat("c", 64)}
	all := []VM{v, other}
	for _, want := range []string{"shop", "default/shop", "virt-launcher-shop-x7k2p"} {
		if got, err := choose(all, want); err != nil || got.Status.GetId() != v.Status.GetId() {
			t.Errorf("%s: %v, %v", want, got.Name(), err)
		}
	}
	if _, err := choose(all, "elsewhere/shop"); err == nil {
		t.Error("a VM of another namespace is found")
	}
}

// TestImageThatTheUserNamed: of several names of one image, the pod's is shown.
func TestImageThatTheUserNamed(t *testing.T) {
	v := running()
	v.Status.Image = &runtimeapi.ImageSpec{Image: "example.com/stranger:1", UserSpecifiedImage: "example.com/mine:2"}
	if rows := rows([]VM{v}, now()); rows[1][3] != "example.com/mine:2" || detail(v, now()).Image != "example.com/mine:2" {
		t.Errorf("%v", rows)
	}
}
