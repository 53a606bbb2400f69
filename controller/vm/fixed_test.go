package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestInstancesOf010: an instance that version 0.1.0 has started takes over the placement, the links and the
// networks of its template. All else waits for a restart.
func TestInstancesOf010(t *testing.T) {
	const written = "d0734131e250dec1" // by version 0.1.0, on the instance of this template
	type spec = kubevirt.VirtualMachineInstanceSpec
	for name, tt := range map[string]struct {
		edit    func(*spec)
		restart bool
	}{
		"link":      {func(s *spec) { s.Domain.Devices.Interfaces[0].State = kubevirt.InterfaceStateLinkDown }, false},
		"other":     {func(s *spec) { s.Domain.Devices.Interfaces[1].State = "" }, false},
		"network":   {func(s *spec) { s.Networks[1].Multus = &kubevirt.MultusNetwork{NetworkName: "two"} }, false},
		"placement": {func(s *spec) { s.NodeSelector = nil }, false},
		"size":      {func(s *spec) { s.Domain.CPU = &kubevirt.CPU{Sockets: 2, MaxSockets: 3} }, false},
		"model":     {func(s *spec) { s.Domain.Devices.Interfaces[1].Model = "e1000e" }, true},
		"host name": {func(s *spec) { s.Hostname = "other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.add(always, func(vm *kubevirt.VirtualMachine) {
				s := &vm.Spec.Template.Spec
				s.NodeSelector = map[string]string{"disk": "fast"}
				s.Domain.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 3}
				s.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}, {Name: "lan", State: kubevirt.InterfaceStateLinkDown}}
				s.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{
					Multus: &kubevirt.MultusNetwork{NetworkName: "one"},
				}}}
			})
			g.reconcile()
			g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{
					Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
				})
			})
			fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Annotations[pod.AnnotationFixed] = written
			})
			for _, edit := range []func(*spec){tt.edit, func(s *spec) { s.Tolerations = []corev1.Toleration{{Key: "maintenance"}} }} {
				g.template(edit)
				g.reconcile()
				g.reconcile()
				if required := g.restartRequired(); required != tt.restart {
					t.Errorf("restart required: %t", required)
				}
			}
			if got := g.vmi().Spec.Tolerations; len(got) != 1 != tt.restart {
				t.Errorf("the instance tolerates %v", got)
			}
		})
	}
}
