package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/pool"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	hotplug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestTrimPod: the cache keeps the annotation that the reconciler removes when a guest has moved, and what of a pod's limit is
// QEMU's.
func TestTrimPod(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		pod.AnnotationEvictionInProgress: "true", pod.AnnotationReserved: "1048576", "other": "long",
		pod.AnnotationPrimaryClaim: "web.default",
	}}}
	trimPod(p)
	if _, has := p.Annotations[pod.AnnotationEvictionInProgress]; !has {
		t.Error("the cache has no mark of an eviction in progress")
	}
	if p.Annotations[pod.AnnotationPrimaryClaim] == "" {
		t.Error("the cache has no IPAMClaim, which a migration's target names, too")
	}
	if p.Annotations[pod.AnnotationReserved] != "1048576" {
		t.Error("the cache does not have what is QEMU's")
	}
	if _, has := p.Annotations["other"]; has {
		t.Error("the cache has a foreign annotation")
	}
}

// TestTrimContainers: of the containers, the cache keeps the IDs by which nodes and migrations know them, and why they ended
// before.
func TestTrimContainers(t *testing.T) {
	const image = "registry.example.com/disk"
	was := corev1.ContainerStatus{
		Name: pod.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		ContainerID: "containerd://abc", ImageID: image + "@sha256:" + strings.Repeat("0", 64),
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", Message: "long"}},
	}
	guest := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{was}}}
	attachment := guest.DeepCopy()
	attachment.Labels = map[string]string{kubevirt.AppLabel: pod.AttachmentLabelValue}
	attachment.Annotations = map[string]string{kubevirt.DomainAnnotation: "web", hotplug.Annotation: "1"}
	if _, _, is := pod.AttachedTo(attachment); !is {
		t.Fatal("the pod is no attachment")
	}
	for name, p := range map[string]*corev1.Pod{"guest": guest, "attachment": attachment} {
		trimPod(p)
		if id := pod.HolderOf(p); id != "abc" {
			t.Errorf("%s: the cache has the container ID %q", name, id)
		}
		has := p.Status.ContainerStatuses[0]
		if last := has.LastTerminationState.Terminated; last == nil || last.Reason != "ContainerStatusUnknown" || last.Message != "" {
			t.Errorf("%s: the cache has the former end %v", name, last)
		}
		target := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: pod.Container, Image: image}}}}
		pod.PinImage(target, p, &kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{
			{VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: image}}},
		}})
		if got := target.Spec.Containers[0].Image; got != was.ImageID {
			t.Errorf("%s: a migration's target would run %s", name, got)
		}
	}
}

// TestTrimMovedPod: the cache keeps what says which MAC addresses the guest had before it moved.
func TestTrimMovedPod(t *testing.T) {
	for _, moved := range []string{"", "{}"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{vmspec.AnnotationVMI: "{}"}}}
		if moved != "" {
			p.Annotations[order.Annotation] = moved
		}
		trimPod(p)
		if _, has := p.Annotations[vmspec.AnnotationVMI]; has != (moved != "") || p.Annotations[order.Annotation] != moved {
			t.Errorf("the order of a migration is %q: the cache has the annotations %v", moved, p.Annotations)
		}
	}
}

// TestTrimConsumer: the cache keeps whose PVCs a pod has bound.
func TestTrimConsumer(t *testing.T) {
	instance := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "1"}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	p, err := pod.Consumer(instance, pod.ConsumerOwner(instance), []*corev1.PersistentVolumeClaim{pvc}, nil, pod.Surroundings{}, pod.Holder{Image: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	trimPod(p)
	if !pod.IsConsumer(p, instance.UID) || pod.Held(p).PVC != "data" {
		t.Errorf("the cache has %+v", p)
	}
}

// TestTrimPVC: the cache keeps the label by which the reconciler finds a VM's persistent state.
func TestTrimPVC(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{pod.StateLabel: "vm", "other": "long"}}}
	trimPVC(c)
	if len(c.Labels) != 1 || c.Labels[pod.StateLabel] != "vm" {
		t.Errorf("the cache has the labels %v", c.Labels)
	}
}

// TestTrimPoolsPVC: the cache keeps for which VM a pool keeps a PVC.
func TestTrimPoolsPVC(t *testing.T) {
	marks := map[string]string{pool.AnnotationPreserved: "web", pool.AnnotationPreservedVolume: "web-0/data", pool.AnnotationAddedDisk: "{}"}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(marks)}}
	c.Annotations["other"] = "long"
	if trimPVC(c); !maps.Equal(c.Annotations, marks) {
		t.Errorf("the cache has the annotations %v", c.Annotations)
	}
}

// TestTrimPreallocatedPVC: the cache keeps that a PVC is preallocated, that it is being deleted, and for which VM it was made.
func TestTrimPreallocatedPVC(t *testing.T) {
	for _, key := range []string{"cdi.kubevirt.io/storage.preallocation", "example.com/storage.thick-provisioned"} {
		now := metav1.Now()
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{key: "true"}, Labels: map[string]string{kubevirt.CreatedByLabel: "uid"}, DeletionTimestamp: &now,
		}}
		pvc.Spec.VolumeName = "pv"
		trimPVC(pvc)
		if !pod.Preallocated(pvc) || pvc.Labels[kubevirt.CreatedByLabel] != "uid" || pvc.DeletionTimestamp == nil || pvc.Spec.VolumeName != "pv" {
			t.Errorf("the cache has %+v", pvc)
		}
	}
}

// TestTrimFilledPVC: the cache keeps what says whether CDI has filled a PVC.
func TestTrimFilledPVC(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"cdi.kubevirt.io/storage.upload.target": ""}}}
	if trimPVC(pvc); !pod.FillsByCDI(pvc) {
		t.Errorf("the cache has the annotations %v", pvc.Annotations)
	}
}

// TestTrimNode: the cache keeps whether a node has guests without pods, and which.
func TestTrimNode(t *testing.T) {
	const guests = `{"guests": []}`
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{condition.AnnotationGuests: guests, "other": "long"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "long"}, {Type: corev1.NodeDiskPressure},
			{Type: condition.GuestsWithoutPods, Status: corev1.ConditionTrue, Reason: condition.ReasonPodsUnknown, Message: "long"},
		}},
	}
	trimNode(n)
	if len(n.Annotations) != 1 || n.Annotations[condition.AnnotationGuests] != guests {
		t.Errorf("the cache has the annotations %v", n.Annotations)
	}
	want := []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: condition.GuestsWithoutPods, Status: corev1.ConditionTrue, Reason: condition.ReasonPodsUnknown},
	}
	if !slices.Equal(n.Status.Conditions, want) {
		t.Errorf("the cache has the conditions %v", n.Status.Conditions)
	}
}
