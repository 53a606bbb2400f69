package vmi

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	waiting := g.waits("web", "FailedDataVolumeNotFound", "Neither DataVolume nor PVC default/data exists")
	if c := find(waiting.Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady); c == nil || c.Status != corev1.ConditionFalse || c.Reason != "NotAllDVsReady" {
		t.Errorf("DataVolumes are ready: %+v", c)
	}
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
	g.reconcile()
	if c := find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady); c == nil || c.Status != corev1.ConditionTrue || c.Reason != "AllDVsReady" {
		t.Errorf("DataVolumes are ready: %+v", c)
	}
	// One that it is about to get is not.
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		plugged("more", "more", kubevirt.VolumePending)(vmi)
		s := &vmi.Status.VolumeStatus[len(vmi.Status.VolumeStatus)-1]
		s.Reason, s.Message = ReasonDataVolumeNotReady, "DataVolume default/more is in phase Pending"
	})
	g.reconcile()
	if c := find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady); c == nil || c.Status != corev1.ConditionFalse || c.Reason != "NotAllDVsReady" {
		t.Errorf("DataVolumes are ready: %+v", c)
	}
}

// TestDataVolumeFilledForPod: CDI fills a PVC that is bound late when the instance's pod is there, which waits for it. Until
// then the DataVolume is not ready, and CDI's errors are the instance's.
func TestDataVolumeFilledForPod(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "data", UID: "1", Controller: new(true)}}
		pvc.Status.Phase = corev1.ClaimPending
	})
	g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "PendingPopulation"}
	g.add(ofDataVolume)
	g.reconcile()
	p := g.onePod()
	g.now = g.now.Add(time.Minute)
	says := func(status corev1.ConditionStatus, reason, words string) {
		t.Helper()
		result := g.reconcile()
		c, s := find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady), find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceSynchronized)
		if c == nil || c.Status != status || !strings.Contains(c.Message, words) || (s != nil) != (reason != "") || s != nil && (s.Reason != reason || s.Message != c.Message) {
			t.Errorf("DataVolumes are ready: %+v, synchronized %+v; want %s of %s", c, s, words, reason)
		}
		if (result.RequeueAfter == pollDataVolume) != (reason != "") {
			t.Errorf("asked again after %s", result.RequeueAfter)
		}
	}
	says(corev1.ConditionFalse, ReasonDataVolumeNotReady, "DataVolume default/data is in phase PendingPopulation")
	g.cdi.Phase, g.cdi.Words = "CloneScheduled", "CloneSourceInUse: pod web uses it"
	says(corev1.ConditionFalse, ReasonDataVolumeNotReady, "is in phase CloneScheduled, progress unknown. CloneSourceInUse: pod web uses it")
	g.cdi.Phase, g.cdi.Words, g.cdi.Error = "ImportInProgress", "", "got 404"
	says(corev1.ConditionFalse, ReasonDataVolumeFailed, "CDI cannot fill DataVolume default/data, and tries again: got 404")
	if got := g.Events(); !strings.Contains(got, "Warning FailedDataVolumeImport") || !strings.Contains(got, "got 404") {
		t.Errorf("no event of the error:\n%s", got)
	}
	g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "Succeeded"}
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Status.Phase = corev1.ClaimBound })
	says(corev1.ConditionTrue, "", "All DataVolumes are filled.")
	g.bind(p, "node1")
	g.state(p, running)
	g.reconcile()
	if c := find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("DataVolumes are ready: %+v", c)
	}
}

// TestDataVolumeNotBegun: what CDI says before it creates the PVC is what the instance says.
func TestDataVolumeNotBegun(t *testing.T) {
	g := newRig(t)
	g.add(ofDataVolume)
	g.cdi.State = datavolume.State{Served: true, Found: true, Error: "ErrClaimNotValid: PVC size is missing"}
	g.waits("web", ReasonDataVolumeFailed, "CDI cannot fill DataVolume default/data, and tries again: ErrClaimNotValid: PVC size is missing")
	g.cdi.State = datavolume.State{Served: true, Found: true, Words: "CloneSourceInUse: pod web uses it"}
	g.waits("web", ReasonDataVolumeNotReady, "CDI has not begun to fill DataVolume default/data: CloneSourceInUse: pod web uses it")
}

// TestDataVolumeUnwritten: without CDI, the PVC of a DataVolume is filled when the node has written the image to it.
func TestDataVolumeUnwritten(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{pod.AnnotationOrigin: "registry.example.com/guest:1"}
	})
	g.add(ofDataVolume)
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	says := func(status corev1.ConditionStatus, words string) {
		t.Helper()
		g.reconcile()
		if c := find(g.vmi().Status.Conditions, kubevirt.VirtualMachineInstanceDataVolumesReady); c == nil || c.Status != status || !strings.Contains(c.Message, words) {
			t.Errorf("DataVolumes are ready: %+v; want %s", c, words)
		}
	}
	says(corev1.ConditionFalse, "The node is about to write image registry.example.com/guest:1 to PVC default/data.")
	g.state(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
	says(corev1.ConditionFalse, "no such image")
	g.state(p, running)
	says(corev1.ConditionTrue, "All DataVolumes are filled.")
}

// TestFilledByAnnotations: an instance waits for a PVC that CDI fills without a DataVolume, if the cluster has CDI.
func TestFilledByAnnotations(t *testing.T) {
	for annotation, done := range map[string][2]string{
		"cdi.kubevirt.io/storage.import.endpoint": {"cdi.kubevirt.io/storage.pod.phase", "Succeeded"},
		"cdi.kubevirt.io/storage.upload.target":   {"cdi.kubevirt.io/storage.pod.phase", "Succeeded"},
		"k8s.io/CloneRequest":                     {"k8s.io/CloneOf", "true"},
	} {
		g := newRig(t)
		pvc := g.addPVC(corev1.ReadWriteOnce)
		fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Annotations = map[string]string{annotation: "", "cdi.kubevirt.io/storage.pod.phase": "Running"}
		})
		g.cdi.State = datavolume.State{Served: true}
		g.add(onPVC())
		g.waits("web", ReasonPVCNotFilled, "by which CDI fills it")
		if n := len(g.pods()); n != 0 {
			t.Errorf("%s: %d pods", annotation, n)
		}
		fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations[done[0]] = done[1] })
		g.reconcile()
		g.onePod()
	}
	g := newRig(t)
	fakecluster.Change(t, g.Cluster, g.addPVC(corev1.ReadWriteOnce), func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{"cdi.kubevirt.io/storage.upload.target": ""}
	})
	g.add(onPVC())
	g.reconcile()
	g.onePod() // without CDI
}

// TestDataVolumeUnbound: a pod has Kubernetes bind the PVC that CDI fills then, on a node for the VM, and goes before the
// VM's pod comes.
func TestDataVolumeUnbound(t *testing.T) {
	g := newRig(t)
	g.Add(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Handler: "vm", Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"nodevirt.io/node": "true"},
		Tolerations:  []corev1.Toleration{{Key: "vms"}},
	}, Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("96Mi")}}})
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "data", UID: "1", Controller: new(true)}}
	})
	g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "WaitForFirstConsumer"}
	g.add(ofDataVolume, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.NodeSelector = map[string]string{"disk": "fast"}
		vmi.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	})
	g.waits("web", "DataVolumeNotReady", "its PVC is not bound to a volume.")
	p := g.onePod()
	if pod.Held(p).PVC != pvc.Name || p.Spec.RuntimeClassName != nil || !strings.HasPrefix(p.Name, "hp-volume-web-") {
		t.Errorf("pod %s has PVC %s, class %v", p.Name, pod.Held(p).PVC, p.Spec.RuntimeClassName)
	}
	if got := fmt.Sprintf("%v %v %v", p.Spec.NodeSelector, p.Spec.Tolerations[0].Key, p.Spec.Containers[0].Resources.Requests.Memory()); got != "map[disk:fast nodevirt.io/node:true] vms 2Gi" {
		t.Errorf("needs %s", got)
	}
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}
	})
	g.waits("web", "DataVolumeNotReady", "Pod "+p.Name+": 0/1 nodes are available")
	g.onePod()

	g.cdi.Phase = "ImportScheduled"
	g.reconcile()
	g.onePod() // another PVC of it may not be bound
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeName = "pv" })
	g.reconcile()
	if n := len(g.pods()); n != 0 {
		t.Errorf("%d pods once the PVC is bound", n)
	}
	g.cdi.Phase = "Succeeded"
	g.reconcile()
	if p := g.onePod(); p.Spec.RuntimeClassName == nil {
		t.Errorf("pod %s is none of a VM", p.Name)
	}
}

// TestDataVolumeUnboundElsewhere: a PVC for a VM that runs is bound on its node.
func TestDataVolumeUnboundElsewhere(t *testing.T) {
	g := newRig(t)
	g.started()
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "data", UID: "1", Controller: new(true)}}
	})
	g.cdi.State = datavolume.State{Served: true, Found: true, Phase: "WaitForFirstConsumer"}
	vmi := g.vmi()
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "more", VolumeSource: kubevirt.VolumeSource{
		DataVolume: &kubevirt.DataVolumeSource{Name: "data", Hotpluggable: true},
	}})
	_, _, why, err := g.r.Guests.Reserve(t.Context(), vmi, "more")
	if err != nil || why == nil || why.Reason != ReasonDataVolumeNotReady {
		t.Fatalf("%+v, %v", why, err)
	}
	for _, p := range g.pods() {
		if pod.IsConsumer(&p, vmi.UID) {
			if !reflect.DeepEqual(p.Spec.Affinity, pod.OnNode("node1")) || p.Spec.NodeSelector != nil {
				t.Errorf("affinity %+v, node selector %v", p.Spec.Affinity, p.Spec.NodeSelector)
			}
			return
		}
	}
	t.Error("no pod has the PVC bound")
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
