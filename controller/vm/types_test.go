package vm

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	typesapi "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func large() *typesapi.VirtualMachineInstancetype {
	return &typesapi.VirtualMachineInstancetype{
		TypeMeta:   metav1.TypeMeta{APIVersion: typesapi.SchemeGroupVersion.String(), Kind: "VirtualMachineInstancetype"},
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "large", Generation: 1},
		Spec: typesapi.VirtualMachineInstancetypeSpec{
			CPU: typesapi.CPUInstancetype{Guest: 4}, Memory: typesapi.MemoryInstancetype{Guest: resource.MustParse("1Gi")},
		},
	}
}

// typed makes a VM one whose size comes from the instance type large.
func typed(vm *kubevirt.VirtualMachine) {
	vm.Spec.Template.Spec.Domain.Memory = nil
	vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "large", Kind: "VirtualMachineInstancetype"}
}

// TestInstancetype: a VM waits for its instance type, keeps a revision of it before
// its instance is made, and makes its next instance of that revision.
func TestInstancetype(t *testing.T) {
	g := newRig(t)
	g.add(always, typed)
	g.reconcile() // no error: the instance type's creation is what goes on
	if c := g.failure(); c == nil || c.Reason != "FailedFindInstancetype" || g.vmi() != nil {
		t.Errorf("condition: %+v", c)
	}
	if got := g.r.whoWants(t.Context(), large()); len(got) != 1 || got[0].NamespacedName != web {
		t.Errorf("who waits for it: %v", got)
	}
	g.Add(t, large())
	g.Writes()
	g.reconcile()
	g.expect("create ControllerRevision, patch status of VirtualMachine, create ControllerRevision, create VirtualMachineInstance, " +
		"patch status of VirtualMachine")
	if cpu := g.vmi().Spec.Domain.CPU; cpu == nil || cpu.Sockets*cpu.Cores*cpu.Threads != 4 {
		t.Errorf("CPU: %+v", cpu)
	}
	revision := g.vm().Status.InstancetypeRef.ControllerRevisionRef.Name
	if !g.Exists(t, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: revision}}) {
		t.Errorf("no revision %q", revision)
	}
	if got := g.r.whoWants(t.Context(), large()); got != nil {
		t.Errorf("still waits: %v", got)
	}

	changed := large()
	fakecluster.Change(t, g.Cluster, changed, func(i *typesapi.VirtualMachineInstancetype) { i.Spec.CPU.Guest = 8 })
	vmi := g.vmi()
	if err := g.Delete(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	g.ended()
	g.reconcile()
	if cpu := g.vmi().Spec.Domain.CPU; cpu.Sockets*cpu.Cores*cpu.Threads != 4 {
		t.Errorf("CPU of the next instance: %+v", cpu)
	}
}

// TestTypeConflicts: a size that both name is reported, and not tried again.
func TestTypeConflicts(t *testing.T) {
	g := newRig(t)
	g.Add(t, large())
	g.add(always, typed, func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.CPU = &kubevirt.CPU{Cores: 2}
	})
	g.reconcile()
	if c := g.failure(); c == nil || !strings.Contains(c.Message, "conflicts with selected instance type") || g.vmi() != nil {
		t.Errorf("condition: %+v", c)
	}
}

// TestOldRevision: a revision of an early KubeVirt becomes one as they are made today, with the same
// content. One that another VM owns, or that the author named, stays.
func TestOldRevision(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*kubevirt.VirtualMachine, *appsv1.ControllerRevision)
		stays  bool
	}{
		{name: "no version"},
		{name: "another VM's", stays: true, change: func(_ *kubevirt.VirtualMachine, r *appsv1.ControllerRevision) {
			r.OwnerReferences[0].UID = "other"
		}},
		{name: "the author's", stays: true, change: func(vm *kubevirt.VirtualMachine, r *appsv1.ControllerRevision) {
			vm.Spec.Instancetype.RevisionName = r.Name
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.Add(t, large())
			g.add(kubevirt.RunStrategyHalted, typed)
			g.reconcile()
			first := g.vm().Status.InstancetypeRef.ControllerRevisionRef.Name
			old := new(appsv1.ControllerRevision)
			assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: web.Namespace, Name: first}, old))
			assert.NilError(t, g.Delete(t.Context(), old))
			old.Name, old.ResourceVersion, old.UID = "web-large-uid-1", "", ""
			delete(old.Labels, groups.ControllerRevisionObjectVersionLabel)
			vm := g.vm()
			if tt.change != nil {
				tt.change(vm, old)
			}
			g.Add(t, old)
			assert.NilError(t, g.Update(t.Context(), vm))
			vm.Status.InstancetypeRef.ControllerRevisionRef.Name = old.Name
			assert.NilError(t, g.Client.Status().Update(t.Context(), vm))

			g.reconcile()
			g.reconcile()
			want := first
			if tt.stays {
				want = old.Name
			}
			if got := g.vm().Status.InstancetypeRef.ControllerRevisionRef.Name; got != want || g.Exists(t, old) != tt.stays {
				t.Errorf("the VM's revision is %s, want %s; the old one exists: %t", got, want, g.Exists(t, old))
			}
			made := new(appsv1.ControllerRevision)
			assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: web.Namespace, Name: want}, made))
			if made.Labels[groups.ControllerRevisionObjectVersionLabel] != "v1beta1" != tt.stays {
				t.Errorf("labels %v", made.Labels)
			}
		})
	}
}
