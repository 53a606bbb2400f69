package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// resizable is a running instance of 1 socket and 64 MiB that can get 3 and 256 MiB.
func resizable(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		d := &vm.Spec.Template.Spec.Domain
		d.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 3}
		d.Memory.MaxGuest = new(resource.MustParse("256Mi"))
		d.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	})
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	g.Writes()
	g.Events()
	return g
}

func (g *rig) template(change func(d *kubevirt.DomainSpec)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { change(&vm.Spec.Template.Spec.Domain) })
	g.reconcile()
	g.reconcile()
}

func (g *rig) wantSize(sockets uint32, guest, request string, restart bool) {
	g.t.Helper()
	d := g.vmi().Spec.Domain
	if d.CPU.Sockets != sockets || d.Memory.Guest.String() != guest || d.Resources.Requests.Memory().String() != request {
		g.t.Errorf("the instance has %d sockets, %s, requests %s; want %d, %s, %s", d.CPU.Sockets, d.Memory.Guest, d.Resources.Requests.Memory(),
			sockets, guest, request)
	}
	required := false
	for _, c := range g.vm().Status.Conditions {
		required = required || c.Type == kubevirt.VirtualMachineRestartRequired
	}
	if required != restart {
		g.t.Errorf("RestartRequired is %t", required)
	}
}

// TestResize: the running instance gets what the template has more, up to its maximums. All else
// waits for a restart.
func TestResize(t *testing.T) {
	sockets := func(n uint32) func(*kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) { d.CPU.Sockets = n }
	}
	guest := func(size string) func(*kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) { d.Memory.Guest = new(resource.MustParse(size)) }
	}
	g := resizable(t)
	g.wantSize(1, "64Mi", "32Mi", false)
	g.template(sockets(2))
	g.wantSize(2, "64Mi", "32Mi", false)
	g.template(guest("192Mi"))
	g.wantSize(2, "192Mi", "160Mi", false)
	g.Writes()
	g.reconcile()
	g.expect("")
	g.template(sockets(1))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.template(sockets(4))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.template(sockets(3))
	g.wantSize(3, "192Mi", "160Mi", false)
	g.template(guest("64Mi"))
	g.wantSize(3, "192Mi", "160Mi", true)
	g.template(guest("256Mi"))
	g.wantSize(3, "256Mi", "224Mi", false)
	g.template(func(d *kubevirt.DomainSpec) { d.CPU.Cores, d.CPU.Sockets = 2, 3 })
	g.wantSize(3, "256Mi", "224Mi", true)
}
