package controller_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cloneapi "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumeSnapshots serves VolumeSnapshots, with a class of the driver csi.
func (w *world) volumeSnapshots() {
	w.Helper()
	if err := w.server.Apply(w.Context(), "testdata/volumesnapshots.yaml"); err != nil {
		w.Fatal(err)
	}
	class := &unstructured.Unstructured{Object: map[string]any{"driver": "csi", "deletionPolicy": "Delete"}}
	class.SetAPIVersion("snapshot.storage.k8s.io/v1")
	class.SetKind("VolumeSnapshotClass")
	class.SetName("fast")
	if err := w.Create(w.Context(), class); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	}
}

// takeSnapshots does once what external-snapshotter and a driver do.
func (w *world) takeSnapshots() {
	w.Helper()
	list := new(unstructured.UnstructuredList)
	list.SetAPIVersion("snapshot.storage.k8s.io/v1")
	list.SetKind("VolumeSnapshotList")
	if err := w.List(w.Context(), list, inNamespace); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.Object["status"] != nil || o.GetDeletionTimestamp() != nil {
			continue
		}
		o.Object["status"] = map[string]any{
			"creationTime": time.Now().UTC().Format(time.RFC3339Nano), "readyToUse": true, "restoreSize": "1Gi",
		}
		if err := w.Status().Update(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// boundPVC makes a PVC of the StorageClass csi that is bound.
func (w *world) boundPVC(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	w.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Provisioner: "csi"}
	if err := w.Create(w.Context(), class); client.IgnoreAlreadyExists(err) != nil {
		w.Fatal(err)
	}
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class.Name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if err := w.Create(w.Context(), pvc); err != nil {
		w.Fatal(err)
	}
	w.change(pvc, true, func() { pvc.Status.Phase = corev1.ClaimBound })
	return pvc
}

// snapshotOf makes a snapshot of a VM.
func (w *world) snapshotOf(vm, name string) *snapshotapi.VirtualMachineSnapshot {
	w.Helper()
	group := kubevirt.GroupVersion.Group
	s := &snapshotapi.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: vm}
	if err := w.Create(w.Context(), s); err != nil {
		w.Fatal(err)
	}
	return s
}

// TestSnapshot: a snapshot waits for the kinds of external-snapshotter, and then has the VM and
// its PVC. The API server serves it in both versions.
func TestSnapshot(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	vm := w.vm("shot", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() {
		vm.Labels = map[string]string{"app": "shot"}
		onPVC(&vm.Spec.Template.Spec, "shot")
	})
	w.boundPVC("shot", map[string]string{"tier": "gold"})
	s := w.snapshotOf("shot", "shot")
	progressing := func(s *snapshotapi.VirtualMachineSnapshot) string {
		if s.Status != nil {
			for _, c := range s.Status.Conditions {
				if c.Type == snapshotapi.ConditionProgressing {
					return c.Reason
				}
			}
		}
		return ""
	}
	until(w, s, "shot", "a reason to wait", func(s *snapshotapi.VirtualMachineSnapshot) bool {
		return strings.Contains(progressing(s), "install external-snapshotter")
	})
	w.volumeSnapshots()
	until(w, s, "shot", "readiness", func(s *snapshotapi.VirtualMachineSnapshot) bool {
		w.takeSnapshots()
		return s.Status != nil && s.Status.Phase == snapshotapi.Succeeded && *s.Status.ReadyToUse
	})
	until(w, vm, "shot", "an unlocked VM", func(vm *kubevirt.VirtualMachine) bool { return vm.Status.SnapshotInProgress == nil })
	content := until(w, new(snapshotapi.VirtualMachineSnapshotContent), *s.Status.VirtualMachineSnapshotContentName, "the content",
		func(*snapshotapi.VirtualMachineSnapshotContent) bool { return true })
	if b := content.Spec.VolumeBackups; len(b) != 1 || b[0].PersistentVolumeClaim.Labels["tier"] != "gold" || b[0].PersistentVolumeClaim.Name != "shot" {
		t.Errorf("backups %+v", b)
	}
	if of := content.Spec.Source.VirtualMachine; of.Labels["app"] != "shot" || of.Spec.Template.Spec.Domain.Memory == nil {
		t.Errorf("the VM in the content: %+v", of)
	}
	older := new(unstructured.Unstructured)
	older.SetAPIVersion("snapshot.kubevirt.io/v1alpha1")
	older.SetKind("VirtualMachineSnapshot")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(s), older); err != nil {
		t.Error(err)
	}
	if err := w.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	untilGone(w, s, "shot")
	untilGone(w, content, content.Name)
}

// bindPVCs does once what a provisioner does with PVCs of a VolumeSnapshot.
func (w *world) bindPVCs() {
	w.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := w.List(w.Context(), &list, inNamespace); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if pvc := &list.Items[i]; pvc.Spec.DataSource != nil && pvc.Spec.DataSource.Kind == "VolumeSnapshot" && pvc.Status.Phase != corev1.ClaimBound {
			w.change(pvc, true, func() { pvc.Status.Phase = corev1.ClaimBound })
		}
	}
}

// restore restores a snapshot, and waits until that is complete.
func (w *world) restore(name, snapshot, target string) *snapshotapi.VirtualMachineRestore {
	w.Helper()
	group := kubevirt.GroupVersion.Group
	r := &snapshotapi.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: target}
	r.Spec.VirtualMachineSnapshotName = snapshot
	if err := w.Create(w.Context(), r); err != nil {
		w.Fatal(err)
	}
	return until(w, r, name, "completion", func(r *snapshotapi.VirtualMachineRestore) bool {
		w.bindPVCs()
		return r.Status != nil && r.Status.Complete != nil && *r.Status.Complete
	})
}

// TestRestore: a VM that has changed is restored, and a copy of it is made, which starts.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	w.node("restore")
	w.volumeSnapshots()
	w.boundPVC("restore", map[string]string{"tier": "gold"})
	vm := w.vm("restore", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() {
		vm.Spec.Template.Spec.Hostname = "before"
		onPVC(&vm.Spec.Template.Spec, "restore")
	})
	s := w.snapshotOf("restore", "restore")
	until(w, s, "restore", "readiness", func(s *snapshotapi.VirtualMachineSnapshot) bool {
		w.takeSnapshots()
		return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
	})
	until(w, vm, "restore", "an unlocked VM", func(vm *kubevirt.VirtualMachine) bool { return vm.Status.SnapshotInProgress == nil })
	w.change(vm, false, func() { vm.Spec.Template.Spec.Hostname = "after" })

	r := w.restore("back", "restore", "restore")
	until(w, vm, "restore", "the former spec", func(vm *kubevirt.VirtualMachine) bool {
		return vm.Spec.Template.Spec.Hostname == "before" && vm.Status.RestoreInProgress == nil
	})
	name := r.Status.Restores[0].PersistentVolumeClaimName
	pvc := until(w, new(corev1.PersistentVolumeClaim), name, "the PVC", func(*corev1.PersistentVolumeClaim) bool { return true })
	if got := vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != name || pvc.Labels["tier"] != "gold" || !metav1.IsControlledBy(pvc, vm) {
		t.Errorf("the VM has PVC %s; %+v", got, pvc.ObjectMeta)
	}

	w.restore("copied", "restore", "restore-copy")
	made := until(w, new(kubevirt.VirtualMachine), "restore-copy", "the copy", func(*kubevirt.VirtualMachine) bool { return true })
	w.change(made, false, func() { made.Spec.RunStrategy = new(kubevirt.RunStrategyAlways) })
	if vmi := w.instanceOf("restore-copy", nil); vmi.Spec.Hostname != "before" {
		t.Errorf("host name %q", vmi.Spec.Hostname)
	}
}

// TestClone: a clone of a VM waits until its disk can have snapshots, makes a VM that starts, and
// goes with it. The API server serves it in both versions.
func TestClone(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	w.node("clone")
	w.volumeSnapshots()
	w.boundPVC("clone", map[string]string{"tier": "gold"})
	vm := w.vm("clone", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() {
		vm.Labels = map[string]string{"app": "web", "role/first": "yes"}
		vm.Spec.Template.Spec.Hostname = "first"
		onPVC(&vm.Spec.Template.Spec, "clone")
	})
	group := kubevirt.GroupVersion.Group
	c := &cloneapi.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "clone"}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: "clone"}
	c.Spec.Target = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VirtualMachine", Name: "clone-copy"}
	c.Spec.LabelFilters = []string{"*", "!role/*"}
	c.Spec.Patches = []string{`{"op": "replace", "path": "/spec/template/spec/hostname", "value": "second"}`}
	if err := w.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	until(w, c, "clone", "success", func(c *cloneapi.VirtualMachineClone) bool {
		w.takeSnapshots()
		w.bindPVCs()
		return c.Status.Phase == cloneapi.Succeeded && c.Status.RestoreName == nil
	})
	untilGone(w, new(snapshotapi.VirtualMachineSnapshot), "tmp-snapshot-"+string(c.UID))
	untilGone(w, new(snapshotapi.VirtualMachineRestore), "tmp-restore-"+string(c.UID))
	made := until(w, new(kubevirt.VirtualMachine), *c.Status.TargetName, "the VM", func(*kubevirt.VirtualMachine) bool { return true })
	if made.Labels["app"] != "web" || made.Labels["role/first"] != "" {
		t.Errorf("labels %v", made.Labels)
	}
	w.change(made, false, func() { made.Spec.RunStrategy = new(kubevirt.RunStrategyAlways) })
	vmi := w.instanceOf("clone-copy", nil)
	if claim := vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName; vmi.Spec.Hostname != "second" || claim == "clone" {
		t.Errorf("host name %q, PVC %s", vmi.Spec.Hostname, claim)
	}
	older := new(unstructured.Unstructured)
	older.SetAPIVersion("clone.kubevirt.io/v1alpha1")
	older.SetKind("VirtualMachineClone")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(c), older); err != nil {
		t.Error(err)
	}
	if err := w.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	untilGone(w, c, "clone")
}

// TestExportOfSnapshot: copies of a snapshot's PVCs are exported.
func TestExportOfSnapshot(t *testing.T) {
	w := exporting(t)
	w.volumeSnapshots()
	w.boundPVC("export-shot", nil)
	vm := w.vm("export-shot", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() { onPVC(&vm.Spec.Template.Spec, "export-shot") })
	s := w.snapshotOf("export-shot", "export-shot")
	w.export("copies", s, "snapshot.kubevirt.io", "VirtualMachineSnapshot")
	until(w, s, "export-shot", "readiness", func(s *snapshotapi.VirtualMachineSnapshot) bool {
		w.takeSnapshots()
		return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
	})
	e := w.exported("copies")
	if v := e.Status.Links.Internal.Volumes; len(v) != 1 || v[0].Name != "copies-export-shot" || v[0].Formats[0].Format != exportapi.KubeVirtRaw {
		t.Errorf("volumes %+v", v)
	}
	pvc := until(w, new(corev1.PersistentVolumeClaim), "copies-export-shot", "the copy", func(*corev1.PersistentVolumeClaim) bool { return true })
	if !metav1.IsControlledBy(pvc, e) || pvc.Spec.DataSource == nil || pvc.Spec.DataSource.Kind != "VolumeSnapshot" {
		t.Errorf("PVC %+v", pvc)
	}
}
