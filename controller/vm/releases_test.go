package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// ownedPVC adds a PVC that the VM, or a DataVolume, owns.
func (g *rig) ownedPVC(name, kind string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	owner := metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: kind, Name: web.Name, UID: "uid-web", Controller: new(true)}
	if kind == "DataVolume" {
		owner.Name, owner.UID = name, "uid-dv"
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	g.Add(g.t, pvc)
	return pvc
}

// user adds a VM that names a PVC, and reconciles it if it should be.
func (g *rig) user(name, claim string) {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
	vm.Spec.RunStrategy = new(kubevirt.RunStrategyHalted)
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("disk", claim)}
	g.Add(g.t, vm)
}

// releasing returns a rig with a reconciled VM, and what happens to its DataVolumes.
func releasing(t *testing.T, strategy kubevirt.VirtualMachineRunStrategy) (*rig, fakeDataVolumes) {
	t.Helper()
	g, volumes := newRig(t), fakeDataVolumes{}
	g.r.dataVolumes, g.r.releases.dataVolumes = volumes, volumes
	g.add(strategy, func(vm *kubevirt.VirtualMachine) { vm.UID = "uid-web" })
	g.reconcile()
	return g, volumes
}

// TestDeletedOwner: Kubernetes does not delete the disk of another VM together with the VM that owns it.
func TestDeletedOwner(t *testing.T) {
	g, volumes := releasing(t, kubevirt.RunStrategyHalted)
	own, shared, made := g.ownedPVC("own", "VirtualMachine"), g.ownedPVC("shared", "VirtualMachine"), g.ownedPVC("made", "DataVolume")
	g.ownedPVC("alone", "DataVolume")
	g.user("other", "shared")
	g.user("another", "made")
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	if g.vm() != nil {
		t.Fatal("the VM is not gone")
	}
	g.Exists(t, own)
	g.Exists(t, shared)
	if len(own.OwnerReferences) != 1 || len(shared.OwnerReferences) != 0 || volumes["released made"] == nil || volumes["released alone"] != nil {
		t.Errorf("owners %+v, of the other VM's %+v, DataVolumes %v", own.OwnerReferences, shared.OwnerReferences, volumes)
	}
	if g.Exists(t, made); len(made.OwnerReferences) != 1 { // its DataVolume's
		t.Errorf("owners %+v", made.OwnerReferences)
	}
}

// TestForegroundDeletion: a VM that is deleted releases the disks of others at once, while its instance still runs.
func TestForegroundDeletion(t *testing.T) {
	g, volumes := releasing(t, kubevirt.RunStrategyAlways)
	if g.vmi() == nil {
		t.Fatal("the VM does not run")
	}
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Finalizers = []string{"example.com/runs"} })
	shared := g.ownedPVC("shared", "VirtualMachine")
	g.ownedPVC("made", "DataVolume")
	g.user("other", "shared")
	g.user("another", "made")
	if err := g.Delete(t.Context(), g.vm()); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	if g.vmi() == nil || g.vm() == nil {
		t.Fatal("the VM is gone already")
	}
	if g.Exists(t, shared); len(shared.OwnerReferences) != 0 || volumes["released made"] == nil {
		t.Errorf("owners %+v, DataVolumes %v", shared.OwnerReferences, volumes)
	}
}

// TestFormerOwner: a VM's disk is released from a VM that does not name it any more, or is being deleted, and from no other.
func TestFormerOwner(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*kubevirt.VirtualMachine)
		owned  int
	}{
		"names it": {change: func(vm *kubevirt.VirtualMachine) {
			vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("disk", "disk")}
		}, owned: 1},
		"fills it": {change: func(vm *kubevirt.VirtualMachine) {
			vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}}
		}, owned: 1},
		"restores it": {change: func(vm *kubevirt.VirtualMachine) { vm.Status.RestoreInProgress = new("back") }, owned: 1},
		"neither":     {change: func(*kubevirt.VirtualMachine) {}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.r.dataVolumes = fakeDataVolumes(nil)
			former := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "former", UID: "uid-web"}}
			former.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
			one.change(former)
			g.Add(t, former)
			pvc := g.ownedPVC("disk", "VirtualMachine")
			fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].Name = "former" })
			g.add(kubevirt.RunStrategyHalted, func(vm *kubevirt.VirtualMachine) {
				vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("disk", "disk")}
			})
			g.reconcile()
			if g.Exists(t, pvc); len(pvc.OwnerReferences) != one.owned {
				t.Errorf("owners %+v, want %d", pvc.OwnerReferences, one.owned)
			}
			volumes := fakeDataVolumes{}
			g.r.dataVolumes, g.r.releases.dataVolumes = volumes, volumes
			fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) {
				c.Labels = map[string]string{kubevirt.CreatedByLabel: "uid-web"}
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "DataVolume", Name: "disk", UID: "uid-dv", Controller: new(true)}}
			})
			g.reconcile()
			if released := volumes["released disk"] != nil; released != (one.owned == 0) {
				t.Errorf("a DataVolume's: released %t", released)
			}
		})
	}
}
