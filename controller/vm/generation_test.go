package vm

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// edit changes the VM as a user does, and reconciles.
func (g *rig) edit(change func(*kubevirt.VirtualMachine)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) {
		change(vm)
		vm.Generation++
	})
	g.reconcile()
}

// observed compares the generations in the VM's status, and that of the instance.
func (g *rig) observed(observed, desired int64) {
	g.t.Helper()
	s := g.vm().Status
	if s.ObservedGeneration != observed || s.DesiredGeneration != desired || generationOf(g.vmi()) != observed {
		g.t.Errorf("generations: observed %d, desired %d, of the instance %d; want %d, %d",
			s.ObservedGeneration, s.DesiredGeneration, generationOf(g.vmi()), observed, desired)
	}
}

// started is a VM whose instance runs, and names the revision of its start.
func started(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.add(always, func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 3}
	})
	g.reconcile()
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VirtualMachineRevisionName = pod.RevisionName(g.vm().UID, "3")
	})
	g.reconcile()
	return g
}

// TestObservedGeneration: an edit that needs no restart is observed at once; one that does,
// when the VM has restarted or the edit is undone.
func TestObservedGeneration(t *testing.T) {
	g := started(t)
	g.observed(3, 3)
	g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirt.RunStrategyRerunOnFailure) })
	g.observed(4, 4)
	g.Writes()
	g.reconcile()
	g.expect("")
	g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Domain.CPU.Sockets = 2 })
	g.observed(5, 5)
	g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" })
	g.observed(5, 6)
	g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "" })
	g.observed(7, 7)
}

// TestGenerationBeforeRevision: the generation stays until the instance's status names the
// revision of its start, which follows from it.
func TestGenerationBeforeRevision(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	g.phase(kubevirt.Scheduling)
	g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirt.RunStrategyRerunOnFailure) })
	g.observed(3, 4)
}

// TestRevisionAfterEdits: the revision of a start stays while edits raise the generation,
// and goes with the next start.
func TestRevisionAfterEdits(t *testing.T) {
	for name, last := range map[string]func(*kubevirt.VirtualMachine){
		"observed":     nil,
		"not observed": func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Hostname = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			g := started(t)
			g.edit(func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirt.RunStrategyRerunOnFailure) })
			if last != nil {
				g.edit(last)
			}
			vm := g.vm()
			if !g.Exists(t, revision(vm, 3)) || g.Exists(t, revision(vm, vm.Generation)) {
				t.Error("not the revision of the start alone is there")
			}
			foreign := &appsv1.ControllerRevision{ObjectMeta: revision(vm, 2).ObjectMeta}
			foreign.Labels = map[string]string{kubevirt.CreatedByLabel: string(vm.UID)}
			g.Add(t, foreign)
			if err := g.Delete(t.Context(), g.vmi()); err != nil {
				t.Fatal(err)
			}
			g.ended()
			g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
			g.reconcile()
			if g.vmi() == nil {
				t.Fatal("the VM does not start")
			}
			if g.Exists(t, revision(vm, 3)) || !g.Exists(t, revision(vm, vm.Generation)) {
				t.Error("not the revision of the last start alone is there")
			}
			if !g.Exists(t, foreign) {
				t.Error("a revision of another owner is gone")
			}
		})
	}
}
