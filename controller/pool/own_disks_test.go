package pool

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	hotplug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
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

// scaledInAndOut has the pool remove web-0, with its state, and make it again. The VM has changed, and pvcs exist.
func (g *rig) scaledInAndOut(change func(*kubevirt.VirtualMachine), pvcs ...*corev1.PersistentVolumeClaim) *kubevirt.VirtualMachine {
	g.t.Helper()
	ascending := &api.VirtualMachinePoolSelectionPolicy{SortPolicy: new(api.VirtualMachinePoolSortPolicyAscendingOrder)}
	g.add(2, withDisk, proactive(ascending, api.StatePreservationOffline))
	g.reconcile()
	g.change("web-0", change)
	for _, pvc := range pvcs {
		g.Add(g.t, pvc)
	}
	former := g.vm("web-0")
	g.scale(1)
	g.reconcile()
	g.has("web-1")
	g.gone()
	return former
}

func claim(name string, of ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name, OwnerReferences: of}}
}

func plug(vm *kubevirt.VirtualMachine) {
	s := &vm.Spec.Template.Spec
	s.Volumes = append(s.Volumes, fakecluster.ClaimVolume("added", "precious"))
	s.Volumes[len(s.Volumes)-1].PersistentVolumeClaim.Hotpluggable = true
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: "added", Serial: "S1"})
}

// TestPreservedAdded: a disk that a user added to a VM is one of the pool's next VM of the number. The pool never owns it.
func TestPreservedAdded(t *testing.T) {
	g := newRig(t)
	pvc := claim("precious")
	g.scaledInAndOut(plug, pvc)
	g.scale(2)
	g.reconcile()
	vm := g.vm("web-0")
	if got := disksOf(vm); got != "[root=root-0 added=precious] [root-0]" {
		t.Errorf("disks %s", got)
	}
	d, v := pod.DiskOf(&vm.Spec.Template.Spec, "added"), pod.VolumeOf(&vm.Spec.Template.Spec, "added")
	if d == nil || d.Serial != "S1" || v == nil || !pod.Hotpluggable(v) {
		t.Errorf("disk %+v, volume %+v", d, v)
	}
	g.reconcile()
	if !g.Exists(t, pvc) || len(pvc.OwnerReferences) > 0 || len(pvc.Annotations) > 0 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
	if got := disksOf(g.vm("web-1")); got != "[root=root-1] [root-1]" {
		t.Errorf("disks of another VM: %s", got)
	}
}

// TestPreservedAddedElsewhere: a user who gave the disk to something else meanwhile keeps it there.
func TestPreservedAddedElsewhere(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: web.Namespace, Name: "other"}
	volumes := []kubevirt.Volume{fakecluster.ClaimVolume("data", "precious")}
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.Spec.Volumes = volumes
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: meta}
	vmi.Spec.Volumes = volumes
	p := &corev1.Pod{ObjectMeta: meta}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "precious"},
	}}}
	export := &exportapi.VirtualMachineExport{ObjectMeta: meta}
	export.Spec.Source.Kind, export.Spec.Source.Name = "PersistentVolumeClaim", "precious"
	for _, other := range []client.Object{vm, vmi, p, export} {
		g := newRig(t)
		g.scaledInAndOut(plug, claim("precious"))
		g.Add(t, other)
		g.scale(2)
		g.reconcile()
		if got := disksOf(g.vm("web-0")); got != "[root=root-0] [root-0]" {
			t.Errorf("%T: disks %s", other, got)
		}
	}
}

// TestPreservedAddedAttached: the former VM's attachment pod, which the garbage collector deletes, keeps no disk from the next VM.
func TestPreservedAddedAttached(t *testing.T) {
	for instance, want := range map[string]string{"web-0": "[root=root-0 added=precious] [root-0]", "web-00": "[root=root-0] [root-0]"} {
		g := newRig(t)
		g.scaledInAndOut(plug, claim("precious"))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: web.Namespace, Name: "hp-volume", Labels: map[string]string{kubevirt.AppLabel: pod.AttachmentLabelValue},
			Annotations: map[string]string{kubevirt.DomainAnnotation: instance, hotplug.Annotation: "uid"},
		}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "precious"},
		}}}
		g.Add(t, p)
		g.scale(2)
		g.reconcile()
		if got := disksOf(g.vm("web-0")); got != want {
			t.Errorf("attachment pod of %s: disks %s, want %s", instance, got, want)
		}
	}
}

// TestPreservedAddedRestored: a PVC that a restore made for an added disk is the VM's own, and would go with it.
func TestPreservedAddedRestored(t *testing.T) {
	g := newRig(t)
	pvc := claim("precious")
	former := g.scaledInAndOut(func(vm *kubevirt.VirtualMachine) {
		plug(vm)
		pvc.OwnerReferences = owners{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	}, pvc)
	if !g.Exists(t, pvc) || len(pvc.OwnerReferences) > 0 {
		t.Fatalf("the garbage collector deletes it: %+v", pvc.ObjectMeta)
	}
	g.scale(2)
	g.reconcile()
	g.reconcile()
	vm := g.vm("web-0")
	if !g.Exists(t, pvc) || !metav1.IsControlledBy(pvc, vm) || vm.UID == former.UID || len(pvc.Annotations) > 0 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
	if got := disksOf(vm); got != "[root=root-0 added=precious] [root-0]" {
		t.Errorf("disks %s", got)
	}
}

// TestForgedAddedDisk: who may annotate a PVC gives a VM no other volume, and none of another pool's.
func TestForgedAddedDisk(t *testing.T) {
	for mark, want := range map[string]string{
		`{"pool": "web", "disk": {"name": "root"}, "volume": {"hostDisk": {"path": "/etc/shadow"}}}`: "[root=root-0 x=forged] [root-0]",
		`{"pool": "other"}`: "[root=root-0] [root-0]",
		`<`:                 "[root=root-0] [root-0]",
	} {
		g := newRig(t)
		pvc := claim("forged")
		pvc.Annotations = map[string]string{AnnotationPreservedVolume: "web-0/x", AnnotationAddedDisk: mark}
		g.Add(t, pvc)
		g.add(1, withDisk)
		g.reconcile()
		if got := disksOf(g.vm("web-0")); got != want {
			t.Errorf("%s: disks %s, want %s", mark, got, want)
		}
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
