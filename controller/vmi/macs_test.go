package vmi

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestWithMACs: cards on secondary networks keep their addresses over two migrations, though each
// pod's own interface has another one.
func TestWithMACs(t *testing.T) {
	multus := kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "x"}}
	vmi := new(kubevirt.VirtualMachineInstance)
	vmi.Spec.Networks = []kubevirt.Network{
		*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: multus}, {Name: "own", NetworkSource: multus},
	}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{
		{Name: "default"}, {Name: "lan"}, {Name: "own", MacAddress: "02:00:00:00:00:09"},
	}
	p := new(corev1.Pod)
	for _, mac := range []string{"02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"} {
		if p.Annotations == nil {
			p.Annotations = map[string]string{pod.AnnotationNetworks: "[]"} // of an older version

		}
		p.Annotations[AnnotationNetworkStatus] = `[{"interface": "net1", "mac": "` + mac + `"}]`
		vmi.Status.Interfaces = interfaces(vmi, p)
		with := WithMACs(vmi)
		for i, want := range []string{"", "02:00:00:00:00:01", "02:00:00:00:00:09"} {
			if got := with.Spec.Domain.Devices.Interfaces[i].MacAddress; got != want {
				t.Errorf("card %d moves with %q, want %q", i, got, want)
			}
		}
		if vmi.Spec.Domain.Devices.Interfaces[1].MacAddress != "" {
			t.Fatal("the instance has changed")
		}
		text, err := json.Marshal(with.Spec)
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations[order.Annotation], p.Annotations[vmspec.AnnotationVMI] = "uid", string(text)
	}
}
