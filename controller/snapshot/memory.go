package snapshot

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

const (
	// AnnotationMemory on a snapshot, with the value true, requests the guest's memory, too.
	AnnotationMemory = "nodevirt.io/memory"
	// AnnotationMemoryPVC is on a content with memory, and is the name of the PVC.
	AnnotationMemoryPVC = "nodevirt.io/memory-pvc"
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
	if p := memory.CheckSize(annotations); p != nil {
		problems = append(problems, p)
	}
	return problems
}

// memories has nodes save the memory of sources' guests to PVCs.
type memories struct{ *memory.Saves }

// of returns the save of a snapshot, whose PVC goes with the content.
func (memories) of(w *work) *memory.Save {
	owner := w.ownedByContent()
	return &memory.Save{
		VMI: w.vmi, Volume: "memory-" + string(w.s.UID), PVC: MemoryPVC(w.content),
		Labels: labels(w.content), Owner: owner, HolderOwner: &owner, Annotations: w.s.Annotations,
	}
}

func (w *work) ownedByContent() metav1.OwnerReference {
	return *metav1.NewControllerRef(w.content, api.SchemeGroupVersion.WithKind(kindContent))
}

// end lets the guest go on.
func (m memories) end(ctx context.Context, w *work) (order.Saved, error) { return m.End(ctx, m.of(w)) }

// save begins a save, or holds the guest.
func (m memories) save(ctx context.Context, w *work, container string, begin bool) (order.Saved, error) {
	a := order.Save{Container: container, Begin: begin}
	for _, b := range w.content.Spec.VolumeBackups {
		a.Disks = append(a.Disks, b.VolumeName)
	}
	return m.Order(ctx, m.of(w), a)
}

// driveMemory takes the next step for a content with memory: the node saves the memory, and holds
// the guest while the VolumeSnapshots are taken. Those of a save that failed are deleted before
// another save begins.
func (d *driver) driveMemory(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot) (time.Duration, error) {
	if w.vmi == nil || w.vmi.Status.Phase != kubevirt.Running {
		// The pod would keep the PVC on the VM's former node, also if that is lost.
		if err := d.memories.Release(ctx, w.content.Namespace, MemoryPVC(w.content)); err != nil {
			return 0, err
		}
		return retry, d.discard(ctx, w, have, "the VM does not run, and the snapshot must have its memory")
	}
	container, why, err := d.memories.Mount(ctx, d.memories.of(w))
	switch {
	case err != nil:
		return 0, err
	case container == "" && len(have) > 0:
		return retry, d.discard(ctx, w, have, "the PVC for the memory is not mounted any more")
	case container == "":
		return memory.Poll, d.statuses.reportContent(ctx, w, have, why)
	}
	saved, err := d.memories.save(ctx, w, container, len(have) == 0)
	if err == nil && saved.State == order.SaveHeld && w.taken(have) {
		saved, err = d.memories.end(ctx, w)
	}
	switch {
	case err != nil:
		return memory.Poll, d.statuses.reportContent(ctx, w, have, err.Error())
	case saved.State == order.SaveHeld && !w.taken(have):
		if err := d.createMissing(ctx, w, have); err != nil {
			return 0, err
		}
		return frozenPoll, d.statuses.reportContent(ctx, w, have, "")
	case saved.State == order.SaveWriting, saved.State == order.SaveHeld:
		return memory.Poll, d.statuses.reportContent(ctx, w, have, "")
	case saved.State == order.SaveCompleted && w.taken(have):
		if err := d.memories.Unmount(ctx, d.memories.of(w)); err != nil {
			return 0, err
		}
		return 0, d.refresh(ctx, w)
	case saved.Message == "":
		saved.Message = "the node knows no such save: its shim has restarted"
	}
	return retry, d.discard(ctx, w, have, "saving the guest's memory failed: "+clip(saved.Message))
}
