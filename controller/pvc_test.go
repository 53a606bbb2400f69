package controller_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// onPVC gives a VM a PVC as its only disk.
func onPVC(spec *kubevirt.VirtualMachineInstanceSpec, pvc string) {
	spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
		},
	}}}
}

// withStub lets VMs boot from other disks than images.
func (w *world) withStub() {
	w.stop()
	w.startWith(controller.Options{StubImage: "registry.example.com/stub:1"})
}

func (w *world) pvc(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	w.Helper()
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if err := w.Create(w.Context(), pvc); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := client.IgnoreNotFound(w.Delete(w.Context(), pvc)); err != nil && w.Context().Err() == nil {
			w.Error(err)
		}
	})
	return pvc
}

// TestMachineOnPVC: a VM waits for its PVC and then for the volume, and its pod has
// the PVC as its volumeMode says.
func TestMachineOnPVC(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	w.node("on-pvc")
	for name, mode := range map[string]corev1.PersistentVolumeMode{"on-block": corev1.PersistentVolumeBlock, "on-files": corev1.PersistentVolumeFilesystem} {
		vm := &kubevirt.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: kubevirt.VirtualMachineSpec{
				RunStrategy: new(kubevirt.RunStrategyAlways),
				Template:    &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI(name).Spec},
			},
		}
		onPVC(&vm.Spec.Template.Spec, name)
		if err := w.Create(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
		got := w.printable(name, kubevirt.VirtualMachineStatusPvcNotFound)
		if c := vmCondition(got, "Synchronized"); c.Reason != "FailedPvcNotFound" || !strings.Contains(c.Message, "PVC default/"+name+" does not exist") {
			t.Errorf("condition %+v", c)
		}
		w.event(name, "FailedPvcNotFound", "PVC default/"+name)
		pvc := w.pvc(name, mode)
		p := w.podOf(w.instanceOf(name, nil))
		c := p.Spec.Containers[0]
		blank := p.Annotations[vmspec.AnnotationBlankDisks]
		if block := len(c.VolumeDevices) == 1 && c.VolumeDevices[0].DevicePath == "/dev/root" && blank == ""; block != (mode == corev1.PersistentVolumeBlock) {
			t.Errorf("%s: devices %+v, mounts %+v, blank %q", mode, c.VolumeDevices, c.VolumeMounts, blank)
		}
		if c.Image != "registry.example.com/stub:1" {
			t.Errorf("image %s", c.Image)
		}
		w.printable(name, kubevirt.VirtualMachineStatusWaitingForVolumeBinding)
		w.change(pvc, true, func() {
			pvc.Status.Phase = corev1.ClaimBound
			pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		})
		w.bind(p, "on-pvc")
		w.printable(name, kubevirt.VirtualMachineStatusStarting)
		w.running(p)
		vmi := w.phase(name, kubevirt.Running)
		if v := vmi.Status.VolumeStatus; len(v) != 1 || v[0].PersistentVolumeClaimInfo == nil || v[0].PersistentVolumeClaimInfo.ClaimName != name {
			t.Errorf("volumes: %+v", v)
		}
	}
}

// TestOnePodPerPVC: of many instances that are created at once, one has a pod; another
// follows when its guest has ended.
func TestOnePodPerPVC(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	w.node("sharing")
	w.pvc("sharing", corev1.PersistentVolumeBlock)
	const count = 8
	errs := make(chan error, count)
	for i := range count {
		go func() {
			vmi := newVMI(fmt.Sprint("sharing-", i))
			onPVC(&vmi.Spec, "sharing")
			errs <- w.Create(w.Context(), vmi)
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	pods := func(ended bool) []corev1.Pod {
		t.Helper()
		var all corev1.PodList
		if err := w.List(t.Context(), &all, inNamespace); err != nil {
			t.Fatal(err)
		}
		var found []corev1.Pod
		for _, p := range all.Items {
			if v := p.Spec.Volumes; len(v) == 1 && v[0].PersistentVolumeClaim != nil && v[0].PersistentVolumeClaim.ClaimName == "sharing" &&
				ended == (p.Status.Phase == corev1.PodSucceeded) {
				found = append(found, p)
			}
		}
		return found
	}
	waiting := func(n int) {
		t.Helper()
		got := 0
		eventually(w, func() bool {
			got = 0
			for i := range count {
				vmi := new(kubevirt.VirtualMachineInstance)
				if err := w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fmt.Sprint("sharing-", i)}, vmi); err != nil {
					t.Fatal(err)
				}
				if c := conditionOf(vmi, "Synchronized"); c.Reason == "PVCInUse" && strings.Contains(c.Message, "in use by instance sharing-") {
					got++
				}
			}
			return got == n
		}, func() string { return fmt.Sprintf("%d instances wait for the PVC; want %d", got, n) })
		if p := pods(false); len(p) != 1 {
			t.Fatalf("%d pods use the PVC", len(p))
		}
	}
	waiting(count - 1)
	first := pods(false)[0]
	w.bind(&first, "sharing")
	w.running(&first)
	w.exited(&first, 0)
	eventually(w, func() bool { return len(pods(true)) == 1 && len(pods(false)) == 1 }, func() string { return "the next instance has no pod" })
	waiting(count - 2)
}

// TestDataVolumeTemplates: in a cluster without CDI a VM's templates become PVCs, once, and a VM of a
// DataVolume that does not exist says so.
func TestDataVolumeTemplates(t *testing.T) {
	w := newWorld(t)
	w.withStub()
	w.node("templates")
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "templates", Namespace: namespace},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: new(kubevirt.RunStrategyAlways),
			Template:    &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI("templates").Spec},
		},
	}
	onDataVolume := func(spec *kubevirt.VirtualMachineInstanceSpec, name string) {
		spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: name}}}}
	}
	onDataVolume(&vm.Spec.Template.Spec, "templates")
	template := `{"metadata": {"name": "templates"}, "spec": {"source": {"registry": {"url": "docker://registry.example.com/guest:1"}},
		"storage": {"volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}}}}`
	vm.Spec.DataVolumeTemplates = make([]kubevirt.DataVolumeTemplateSpec, 1)
	if err := json.Unmarshal([]byte(template), &vm.Spec.DataVolumeTemplates[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	pvc := until(w, new(corev1.PersistentVolumeClaim), "templates", "the PVC", func(*corev1.PersistentVolumeClaim) bool { return true })
	if !metav1.IsControlledBy(pvc, vm) || pvc.Annotations["nodevirt.io/disk-origin"] != "registry.example.com/guest:1" {
		t.Errorf("PVC %+v", pvc.ObjectMeta)
	}
	first := w.instanceOf("templates", nil)
	p := w.podOf(first)
	if p.Annotations[vmspec.AnnotationDiskOrigin] == "" || p.Spec.Containers[0].Image != "registry.example.com/guest:1" {
		t.Errorf("annotations %v, image %s", p.Annotations, p.Spec.Containers[0].Image)
	}
	w.run(first, "templates")
	until(w, pvc, "templates", "the mark", func(pvc *corev1.PersistentVolumeClaim) bool {
		return pvc.Annotations["nodevirt.io/disk-filled"] == "true"
	})
	w.exited(p, 0)
	next := w.podOf(w.instanceOf("templates", first))
	if next.Annotations[vmspec.AnnotationDiskOrigin] != "" || next.Spec.Containers[0].Image != "registry.example.com/stub:1" {
		t.Errorf("the next pod: annotations %v, image %s", next.Annotations, next.Spec.Containers[0].Image)
	}

	missing := vm.DeepCopy()
	missing.ObjectMeta = metav1.ObjectMeta{Name: "no-data-volume", Namespace: namespace}
	missing.Spec.DataVolumeTemplates = nil
	onDataVolume(&missing.Spec.Template.Spec, "missing")
	if err := w.Create(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	w.printable("no-data-volume", "ErrorPvcNotFound")
}
