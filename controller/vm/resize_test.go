package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"
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

func (g *rig) domain(change func(d *kubevirt.DomainSpec)) {
	g.t.Helper()
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { change(&s.Domain) })
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
	if required := g.restartRequired(); required != restart {
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
	g.domain(sockets(2))
	g.wantSize(2, "64Mi", "32Mi", false)
	g.domain(guest("192Mi"))
	g.wantSize(2, "192Mi", "160Mi", false)
	g.Writes()
	g.reconcile()
	g.expect("")
	g.domain(sockets(1))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.domain(sockets(4))
	g.wantSize(2, "192Mi", "160Mi", true)
	g.domain(sockets(3))
	g.wantSize(3, "192Mi", "160Mi", false)
	g.domain(guest("64Mi"))
	g.wantSize(3, "192Mi", "160Mi", true)
	g.domain(guest("256Mi"))
	g.wantSize(3, "256Mi", "224Mi", false)
	g.domain(func(d *kubevirt.DomainSpec) { d.CPU.Cores, d.CPU.Sockets = 2, 3 })
	g.wantSize(3, "256Mi", "224Mi", true)
}
