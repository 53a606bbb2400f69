package vmi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// ofDataVolume puts an instance's only disk on a DataVolume.
func ofDataVolume(vmi *kubevirt.VirtualMachineInstance) {
	vmi.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "data"}}}}
}

// TestDataVolume: an instance waits until CDI has filled the PVC of its DataVolume.
func TestDataVolume(t *testing.T) {
	g := newRig(t)
	g.add(ofDataVolume)
	g.waits("web", "FailedDataVolumeNotFound", "Neither DataVolume nor PVC default/data exists")
	if got := g.reconcile(); got.RequeueAfter != 0 {
		t.Errorf("a cluster without CDI is asked again: %+v", got)
	}
	g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "Pending"}
	g.waits("web", "DataVolumeNotReady", "DataVolume default/data is in phase Pending, progress unknown.")
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "data", UID: "1", Controller: new(true)}}
	})
	if got := g.Events(); !strings.Contains(got, "Normal DataVolumeNotReady") || strings.Contains(got, "Warning DataVolumeNotReady") {
		t.Errorf("to wait for a DataVolume is not a normal event:\n%s", got)
	}
	for _, progress := range []string{"10%", "20%"} {
		g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "ImportInProgress", Progress: progress}
		g.waits("web", "DataVolumeNotReady", "phase ImportInProgress, progress "+progress)
	}
	if got := g.Events(); strings.Contains(got, "progress 20%") {
		t.Errorf("events of the progress:\n%s", got)
	}
	g.cdi.Error = "got 404"
	g.waits("web", "FailedDataVolumeImport", "CDI cannot fill DataVolume default/data, and tries again: got 404")
	if got := g.reconcile(); got.RequeueAfter != pollDataVolume {
		t.Errorf("asked again: %+v", got)
	}
	g.cdi.Phase = "Failed"
	g.waits("web", "FailedDataVolumeImport", "DataVolume default/data has failed")
	if got := g.reconcile(); got.RequeueAfter != pollDataVolume {
		t.Errorf("asked again: %+v", got)
	}
	g.cdi.Phase = "Succeeded"
	g.reconcile()
	g.onePod()
}

// TestDataVolumeWithoutCDI: a PVC of that name is used.
func TestDataVolumeWithoutCDI(t *testing.T) {
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce)
	g.add(ofDataVolume)
	g.reconcile()
	g.onePod()
}

// TestFilledPVC: a PVC is a copy of its image once, whatever the guest does to it.
func TestFilledPVC(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{pod.AnnotationOrigin: "registry.example.com/guest:1"}
	})
	g.add(onPVC())
	g.reconcile()
	p := g.onePod()
	if got := p.Annotations[pod.AnnotationOrigin]; !strings.HasPrefix(got, "root=root-") || p.Spec.Containers[0].Image != "registry.example.com/guest:1" {
		t.Errorf("origin %q, image %s", got, p.Spec.Containers[0].Image)
	}
	g.bind(p, "node1")
	g.Writes()
	g.state(p, running)
	g.reconcile()
	g.expect("patch PersistentVolumeClaim, patch VirtualMachineInstance, patch status of VirtualMachineInstance")
	if !g.Exists(t, pvc) || pvc.Annotations[pod.AnnotationFilled] != "true" {
		t.Errorf("annotations: %v", pvc.Annotations)
	}
	g.reconcile()
	g.expect("")
}

// TestFilledByOwnAnnotation: a PVC that becomes a copy by the instance's own annotation is marked too. The next pod
// does not need the image.
func TestFilledByOwnAnnotation(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fromImage := func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{pod.AnnotationOrigin: "root=image"}
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "image", VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"},
		}})
	}
	g.add(onPVC(), fromImage)
	g.reconcile()
	p := g.onePod()
	if got := p.Annotations[pod.AnnotationOrigin]; got != "root=image" || p.Spec.Containers[0].Image != "registry.example.com/guest:1" {
		t.Errorf("origin %q, image %s", got, p.Spec.Containers[0].Image)
	}
	if !g.Exists(t, pvc) || pvc.Annotations[pod.AnnotationFilled] != "" {
		t.Errorf("annotations before the start: %v", pvc.Annotations)
	}
	g.bind(p, "node1")
	g.Writes()
	g.state(p, running)
	g.reconcile()
	g.expect("patch PersistentVolumeClaim, patch VirtualMachineInstance, patch status of VirtualMachineInstance")
	if !g.Exists(t, pvc) || pvc.Annotations[pod.AnnotationFilled] != "true" {
		t.Errorf("annotations: %v", pvc.Annotations)
	}
	g.reconcile()
	g.expect("")
	g.add(call("next"), onPVC(), fromImage)
	g.state(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	g.reconcileOf("next")
	for _, p := range g.pods() {
		if p.Annotations[kubevirt.DomainAnnotation] != "next" {
			continue
		}
		if got := p.Annotations[pod.AnnotationOrigin]; got != "" || p.Spec.Containers[0].Image != "registry.example.com/stub:1" {
			t.Errorf("the next pod: origin %q, image %s", got, p.Spec.Containers[0].Image)
		}
		return
	}
	t.Error("the next instance has no pod")
}
