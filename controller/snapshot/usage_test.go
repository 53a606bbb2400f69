package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestUsedVolumes: the snapshot of a VM that runs has the PVCs of its guest, not those that the template names for its
// next start.
func TestUsedVolumes(t *testing.T) {
	g := newRig(t)
	for _, name := range []string{"claim-next", "claim-new", "claim-plugged", "claim-made", "claim-moved"} {
		g.claim(name, "csi")
	}
	vm := g.vm(func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root"}, {Name: "data"}, {Name: "disk"}, {Name: "drive"}, {Name: "made"}}
		made := kubevirt.Volume{Name: "made"}
		made.DataVolume = &kubevirt.DataVolumeSource{Name: "claim-made"}
		s.Volumes = append(s.Volumes, made)
		vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "claim-made"}}}
	})
	vmi := g.runs(vm)
	fakecluster.Change(t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Volumes[0].PersistentVolumeClaim.ClaimName = "claim-next"  // at the next start
		s.Volumes = slices.Delete(s.Volumes, 3, 4)                   // made: at the next start
		s.Volumes[1].PersistentVolumeClaim.ClaimName = "claim-moved" // a migration has copied it
		s.Volumes = append(s.Volumes, fakecluster.ClaimVolume("new", "claim-new"), fakecluster.ClaimVolume("plugged", "claim-plugged"))
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: "new"}, kubevirt.Disk{Name: "plugged"})
		vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "claim-new"}}}
	})
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) {
		vmi.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "claim-moved"
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, fakecluster.ClaimVolume("plugged", "claim-plugged"), fakecluster.ClaimVolume("forAWhile", "claim-other"))
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: "plugged"}, kubevirt.Disk{Name: "forAWhile"})
	})
	g.snapshot("one")
	g.reconcile("one")
	s := g.is("one", api.InProgress, "Source locked")
	if slices.Sort(g.driver.pvcs); fmt.Sprint(g.driver.pvcs) != "[claim-made claim-moved claim-plugged claim-root]" {
		t.Errorf("VolumeSnapshots of %v", g.driver.pvcs)
	}
	source := g.content(s).Spec.Source.VirtualMachine
	var volumes, disks, templates []string
	for _, v := range source.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name+"="+pod.ClaimOf(&v))
	}
	for _, d := range source.Spec.Template.Spec.Domain.Devices.Disks {
		disks = append(disks, d.Name)
	}
	for _, d := range source.Spec.DataVolumeTemplates {
		templates = append(templates, d.Name)
	}
	if got := strings.Join(volumes, " "); got != "root=claim-root data=claim-moved disk= made=claim-made plugged=claim-plugged" {
		t.Errorf("volumes %s", got)
	}
	if fmt.Sprint(disks, templates) != "[root data disk drive made plugged] [claim-made]" {
		t.Errorf("disks %v, templates %v", disks, templates)
	}
}

// TestLongName: VolumeSnapshots of a VM whose name no label can have are taken, and found again.
func TestLongName(t *testing.T) {
	g := newRig(t)
	long := "web" + strings.Repeat("-long", 20)
	g.vm(func(vm *kubevirt.VirtualMachine) { vm.Name = long })
	g.snapshot("one", func(s *vmSnapshot) { s.Spec.Source.Name = long })
	g.reconcile("one")
	g.driver.take(true)
	g.reconcile("one")
	if s := g.is("one", api.Succeeded, "Operation complete"); !*s.Status.ReadyToUse {
		t.Errorf("status %+v", s.Status)
	}
}
