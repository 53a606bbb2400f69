package pool

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// restored does what a restore does with a VM's disk.
func restored(vm *kubevirt.VirtualMachine) {
	vm.Spec.DataVolumeTemplates[0].Name = "restored"
	vm.Spec.Template.Spec.Volumes[0].DataVolume.Name = "restored"
}

// disksOf returns the volumes of a VM that are PVCs, and the names of its templates.
func disksOf(vm *kubevirt.VirtualMachine) string {
	var volumes, templates []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name+"="+pod.ClaimOf(&v))
	}
	for _, t := range vm.Spec.DataVolumeTemplates {
		templates = append(templates, t.Name)
	}
	return fmt.Sprint(volumes, templates)
}

// TestOwnDisks: a VM keeps the disk that a restore brought, and that a user added, when the pool's template changes.
func TestOwnDisks(t *testing.T) {
	for name, edit := range map[string]func(*vmPool){
		"another instance": hostname("other"),
		"another strategy": func(pool *vmPool) {
			pool.Spec.VirtualMachineTemplate.Spec.RunStrategy = new(kubevirt.RunStrategyManual)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.add(2, withDisk)
			g.reconcile()
			g.change("web-0", func(vm *kubevirt.VirtualMachine) {
				restored(vm)
				s := &vm.Spec.Template.Spec
				s.Volumes = append(s.Volumes, fakecluster.ClaimVolume("added", "precious"))
				s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: "added"})
			})
			g.edit(edit)
			g.reconcile()
			if got := disksOf(g.vm("web-0")); got != "[root=restored added=precious] [restored]" {
				t.Errorf("disks %s", got)
			}
			if pod.DiskOf(&g.vm("web-0").Spec.Template.Spec, "added") == nil {
				t.Error("the added volume has no disk")
			}
			if got := disksOf(g.vm("web-1")); got != "[root=root-1] [root-1]" {
				t.Errorf("disks of another VM: %s", got)
			}
		})
	}
}

// TestPreservedRestored: the disk that a restore brought is that of the pool's next VM of the number.
func TestPreservedRestored(t *testing.T) {
	ascending := &api.VirtualMachinePoolSelectionPolicy{SortPolicy: new(api.VirtualMachinePoolSortPolicyAscendingOrder)}
	g := newRig(t)
	g.add(2, withDisk, proactive(ascending, api.StatePreservationOffline))
	g.reconcile()
	g.change("web-0", restored)
	pvc := g.addPVC(g.vm("web-0"))
	g.scale(1)
	g.reconcile()
	g.has("web-1")
	g.gone()
	g.scale(2)
	g.reconcile()
	g.has("web-0", "web-1")
	if got := disksOf(g.vm("web-0")); got != "[root=restored] [restored]" {
		t.Errorf("disks %s", got)
	}
	g.reconcile()
	if !g.Exists(t, pvc) || !metav1.IsControlledBy(pvc, g.vm("web-0")) || len(pvc.Annotations) > 0 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
}
