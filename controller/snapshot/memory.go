package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// AnnotationMemory on a snapshot, with the value true, requests the guest's memory, too.
	AnnotationMemory = "nodevirt.io/memory"
	// AnnotationMemoryClass is the storage class of the PVC for the memory; the cluster's default
	// without it.
	AnnotationMemoryClass = "nodevirt.io/memory-storage-class"
	// AnnotationMemorySize is the PVC's size.
	AnnotationMemorySize = "nodevirt.io/memory-size"
	// AnnotationMemoryPVC is on a content with memory, and is the name of the PVC.
	AnnotationMemoryPVC = "nodevirt.io/memory-pvc"
)

const (
	// memoryLabel is on the pod that holds the PVC, which is no volume of the instance's.
	memoryLabel = "memory-snapshot"
	// memorySlack is what the archive has, in bytes, beside the guest's memory and empty disks: the
	// states of devices, and what the guest wrote to its registry disks.
	memorySlack = 1 << 30
	// memoryPoll is the time between two orders to a guest that is saved.
	memoryPoll = time.Second
)

// MemoryPVC returns the name of the PVC with the memory of a snapshot; empty for none.
func MemoryPVC(c *api.VirtualMachineSnapshotContent) string {
	if c == nil {
		return ""
	}
	return c.Annotations[AnnotationMemoryPVC]
}

func wantsMemory(s *vmSnapshot) bool { return s.Annotations[AnnotationMemory] == "true" }

// checkMemory returns what is wrong with a snapshot's annotations.
func checkMemory(annotations map[string]string) field.ErrorList {
	at := field.NewPath("metadata", "annotations")
	var problems field.ErrorList
	if v, ok := annotations[AnnotationMemory]; ok && v != "true" && v != "false" {
		problems = append(problems, fields.Invalid(at.Key(AnnotationMemory), v, "must be true or false"))
	}
	if v, ok := annotations[AnnotationMemorySize]; ok {
		if q, err := resource.ParseQuantity(v); err != nil || q.Sign() <= 0 {
			problems = append(problems, fields.Invalid(at.Key(AnnotationMemorySize), v, "must be a size such as 4Gi"))
		}
	}
	return problems
}

// memories has nodes save the memory of sources' guests to PVCs.
type memories struct {
	live     client.Reader
	uncached client.Client
	pods     pods
	holder   pod.Holder
	guests   interface {
		order(ctx context.Context, w *work, control string, arguments ...string) (string, error)
	}
}

func (w *work) memoryVolume() string { return "memory-" + string(w.s.UID) }

// pvc returns the PVC for the memory, which goes with the content.
func (m *memories) pvc(ctx context.Context, w *work) (*corev1.PersistentVolumeClaim, error) {
	key := client.ObjectKey{Namespace: w.content.Namespace, Name: MemoryPVC(w.content)}
	pvc := new(corev1.PersistentVolumeClaim)
	err := m.live.Get(ctx, key, pvc)
	if err == nil || !apierrors.IsNotFound(err) {
		return pvc, client.IgnoreNotFound(err)
	}
	mode := corev1.PersistentVolumeFilesystem
	pvc = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: labels(w.content),
			OwnerReferences: []metav1.OwnerReference{w.ownedByContent()},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: memorySize(w)}},
		},
	}
	if class := w.s.Annotations[AnnotationMemoryClass]; class != "" {
		pvc.Spec.StorageClassName = &class
	}
	if err := m.uncached.Create(ctx, pvc); err != nil {
		return nil, fmt.Errorf("create PVC %s: %w", key, err)
	}
	return pvc, nil
}

func (w *work) ownedByContent() metav1.OwnerReference {
	return *metav1.NewControllerRef(w.content, api.SchemeGroupVersion.WithKind(kindContent))
}

// memorySize returns the size of the PVC: what the user requests, or else what the guest's memory
// and its empty disks can need.
func memorySize(w *work) resource.Quantity {
	if q, err := resource.ParseQuantity(w.s.Annotations[AnnotationMemorySize]); err == nil && q.Sign() > 0 {
		return q
	}
	spec, _ := vmspec.Preview(field.NewPath("spec"), &w.vmi.Spec)
	of := w.vmi.Spec.Domain.Resources
	size := max(spec.Memory, spec.MaxMemory, of.Requests.Memory().Value(), of.Limits.Memory().Value()) + memorySlack
	for _, d := range spec.Disks {
		if d.Source == vmspec.SourceEmpty {
			size += d.Size
		}
	}
	return *resource.NewQuantity(size, resource.BinarySI)
}

// attachment returns the pod that has the kubelet of the guest's node mount the PVC. The content
// owns it: hotplug reconciles those of the instance.
func (m *memories) attachment(ctx context.Context, w *work, pvc *corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	own, err := m.pods.PodOf(ctx, w.vmi, pod.Current(w.vmi))
	if err != nil || own == nil {
		return nil, err
	}
	vmi, source := w.vmi.DeepCopy(), new(kubevirt.MemoryDumpVolumeSource)
	source.ClaimName = pvc.Name
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: w.memoryVolume(), VolumeSource: kubevirt.VolumeSource{MemoryDump: source}})
	p, err := pod.Attachment(vmi, own, w.memoryVolume(), pod.PVCObjects{pvc.Name: pvc}, m.holder)
	if err != nil {
		return nil, err
	}
	p.Labels[kubevirt.AppLabel] = memoryLabel
	owner := w.ownedByContent()
	owner.BlockOwnerDeletion = nil
	p.OwnerReferences = []metav1.OwnerReference{owner}
	return p, nil
}

// mount has the PVC mounted, and returns the ID of the container that has it. Without one, it
// returns what is wrong, if anything is.
func (m *memories) mount(ctx context.Context, w *work) (container, why string, err error) {
	pvc, err := m.pvc(ctx, w)
	if err != nil {
		return "", "", err
	}
	wanted, err := m.attachment(ctx, w, pvc)
	if err != nil || wanted == nil {
		return "", "the VM has no pod", err
	}
	p := new(corev1.Pod)
	err = m.live.Get(ctx, client.ObjectKeyFromObject(wanted), p)
	switch {
	case apierrors.IsNotFound(err):
		if err := m.uncached.Create(ctx, wanted); err != nil {
			return "", "", fmt.Errorf("create attachment pod %s: %w", wanted.Name, err)
		}
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("read attachment pod %s: %w", wanted.Name, err)
	case p.DeletionTimestamp != nil:
		return "", "attachment pod " + p.Name + " is being deleted", nil
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return "", "attachment pod " + p.Name + " has ended", m.remove(ctx, p)
	}
	if id := pod.HolderOf(p); id != "" {
		return id, "", nil
	}
	if c := pod.Unscheduled(p); c != nil {
		return "", "PVC " + pvc.Name + " for the memory: " + clip(c.Message), nil
	}
	return "", "", nil
}

// unmount deletes the attachment pod of a save that is complete. One that stays goes with the content.
func (m *memories) unmount(ctx context.Context, w *work) error {
	own, err := m.pods.PodOf(ctx, w.vmi, pod.Current(w.vmi))
	if err != nil || own == nil {
		return err
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: pod.AttachmentName(own, w.memoryVolume())}}
	return m.remove(ctx, p)
}

func (m *memories) remove(ctx context.Context, p *corev1.Pod) error {
	if err := m.uncached.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete attachment pod %s: %w", p.Name, err)
	}
	return nil
}

// give gives an order about the save, and returns the node's answer.
func (m *memories) give(ctx context.Context, w *work, control string, argument any) (order.Saved, error) {
	var s order.Saved
	text, err := json.Marshal(argument)
	if err != nil {
		return s, err
	}
	answer, err := m.guests.order(ctx, w, control, string(text))
	if err == nil && (json.Unmarshal([]byte(answer), &s) != nil || s.Volume != w.memoryVolume()) {
		err = fmt.Errorf("%s: the node's answer is not about the save", control)
	}
	return s, err
}

// end lets the guest go on.
func (m *memories) end(ctx context.Context, w *work) (order.Saved, error) {
	return m.give(ctx, w, order.MemorySaveEnd, order.Name{Name: w.memoryVolume()})
}

// save begins a save, or holds the guest.
func (m *memories) save(ctx context.Context, w *work, container string, begin bool) (order.Saved, error) {
	a := order.Save{Volume: w.memoryVolume(), Container: container, Begin: begin}
	for _, b := range w.content.Spec.VolumeBackups {
		a.Disks = append(a.Disks, b.VolumeName)
	}
	return m.give(ctx, w, order.MemorySave, a)
}

// driveMemory takes the next step for a content with memory: the node saves the memory, and holds
// the guest while the VolumeSnapshots are taken. Those of a save that failed are deleted before
// another save begins.
func (d *driver) driveMemory(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot) (time.Duration, error) {
	if w.vmi == nil || w.vmi.Status.Phase != kubevirt.Running {
		return retry, d.discard(ctx, w, have, "the VM does not run, and the snapshot must have its memory")
	}
	container, why, err := d.memories.mount(ctx, w)
	switch {
	case err != nil:
		return 0, err
	case container == "" && len(have) > 0:
		return retry, d.discard(ctx, w, have, "the PVC for the memory is not mounted any more")
	case container == "":
		return memoryPoll, d.statuses.reportContent(ctx, w, have, why)
	}
	saved, err := d.memories.save(ctx, w, container, len(have) == 0)
	if err == nil && saved.State == order.SaveHeld && w.taken(have) {
		saved, err = d.memories.end(ctx, w)
	}
	switch {
	case err != nil:
		return memoryPoll, d.statuses.reportContent(ctx, w, have, err.Error())
	case saved.State == order.SaveHeld && !w.taken(have):
		if err := d.createMissing(ctx, w, have); err != nil {
			return 0, err
		}
		return frozenPoll, d.statuses.reportContent(ctx, w, have, "")
	case saved.State == order.SaveWriting, saved.State == order.SaveHeld:
		return memoryPoll, d.statuses.reportContent(ctx, w, have, "")
	case saved.State == order.SaveCompleted && w.taken(have):
		if err := d.memories.unmount(ctx, w); err != nil {
			return 0, err
		}
		return 0, d.refresh(ctx, w)
	case saved.Message == "":
		saved.Message = "the node knows no such save: its shim has restarted"
	}
	return retry, d.discard(ctx, w, have, "saving the guest's memory failed: "+clip(saved.Message))
}
