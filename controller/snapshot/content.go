package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// contentName returns KubeVirt's name of a snapshot's content.
func contentName(s *vmSnapshot) string {
	if s.Status != nil && s.Status.VirtualMachineSnapshotContentName != nil {
		return *s.Status.VirtualMachineSnapshotContentName
	}
	return "vmsnapshot-content-" + string(s.UID)
}

// created reports whether all of a content is there, though drivers may not have copied it yet.
func created(c *vmContent) bool { return c != nil && c.Status != nil && c.Status.CreationTime != nil }

// ready reports whether a VM can be restored from a content.
func ready(c *vmContent) bool {
	return c != nil && c.Status != nil && c.Status.ReadyToUse != nil && *c.Status.ReadyToUse
}

// contents makes and ends the contents of snapshots.
type contents struct {
	client   client.Client
	live     client.Reader
	usage    usage
	volumes  volumes
	events   events.EventRecorder
	writer   patcher
	captures interface {
		captureAll(ctx context.Context, w *work, vm *api.VirtualMachine) error
	}
}

// create keeps the locked source's spec and those of its PVCs.
func (c *contents) create(ctx context.Context, w *work) error {
	used, err := c.usage.of(ctx, w)
	if err != nil {
		return err
	}
	vm := &api.VirtualMachine{ObjectMeta: simplified(w.vm.ObjectMeta), Spec: *used.Spec.DeepCopy()}
	backups, err := c.backups(ctx, w, used)
	if err != nil {
		return err
	}
	if err := c.captures.captureAll(ctx, w, vm); err != nil {
		return err
	}
	content := &vmContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.s.Namespace, Name: contentName(w.s), Finalizers: []string{contentFinalizer}},
		Spec: api.VirtualMachineSnapshotContentSpec{
			VirtualMachineSnapshotName: &w.s.Name,
			Source:                     api.SourceSpec{VirtualMachine: vm},
			VolumeBackups:              backups,
		},
	}
	if wantsMemory(w.s) {
		content.Annotations = map[string]string{AnnotationMemoryPVC: fmt.Sprintf("vmsnapshot-%s-memory", w.s.UID)}
	}
	if err := c.client.Create(ctx, content); err != nil {
		return fmt.Errorf("create snapshot content %s/%s: %w", content.Namespace, content.Name, err)
	}
	c.events.Eventf(w.s, content, corev1.EventTypeNormal, "SuccessfulVirtualMachineSnapshotContentCreate", "Create",
		"Successfully created VirtualMachineSnapshotContent %s", content.Name)
	w.content = content
	return nil
}

// simplified returns what of an object's metadata its restored successor has too.
func simplified(m metav1.ObjectMeta) metav1.ObjectMeta {
	annotations := maps.Clone(m.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation) // as large as the object
	delete(annotations, pod.AnnotationResume)
	delete(annotations, pod.AnnotationSuspend)
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		Labels: maps.Clone(m.Labels), Annotations: annotations,
	}
}

// backups returns the PVCs of the source, as its guest uses it, that can have snapshots. As with KubeVirt, the snapshot
// leaves out others.
func (c *contents) backups(ctx context.Context, w *work, used *kubevirt.VirtualMachine) ([]api.VolumeBackup, error) {
	uses, err := state.PVCs(ctx, c.live, used)
	if err != nil {
		return nil, err
	}
	var all []api.VolumeBackup
	for _, use := range uses {
		key := client.ObjectKey{Namespace: w.vm.Namespace, Name: use.Name}
		pvc := new(corev1.PersistentVolumeClaim)
		if err := c.live.Get(ctx, key, pvc); err != nil { // the cache has no labels
			return nil, fmt.Errorf("read PVC %s: %w", key, err)
		}
		class, err := c.classOf(ctx, pvc.Spec.StorageClassName)
		if err != nil {
			return nil, err
		}
		if class == "" {
			continue
		}
		name := fmt.Sprintf("vmsnapshot-%s-volume-%s", w.s.UID, use.Volume)
		meta := simplified(pvc.ObjectMeta)
		meta.OwnerReferences = pvc.OwnerReferences // for restores to new VMs
		all = append(all, api.VolumeBackup{
			VolumeName:            use.Volume,
			PersistentVolumeClaim: api.PersistentVolumeClaim{ObjectMeta: meta, Spec: *pvc.Spec.DeepCopy()},
			VolumeSnapshotName:    &name,
		})
	}
	return all, nil
}

// classOf returns the VolumeSnapshotClass for the PVCs of a StorageClass; "" for none.
func (c *contents) classOf(ctx context.Context, storageClass *string) (string, error) {
	if storageClass == nil || *storageClass == "" {
		return "", nil
	}
	of := new(storagev1.StorageClass)
	err := c.live.Get(ctx, client.ObjectKey{Name: *storageClass}, of)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read StorageClass %s: %w", *storageClass, err)
	}
	classes, _, err := c.volumes.Classes(ctx)
	if err != nil {
		return "", err
	}
	return volumesnapshot.ClassOf(classes, of)
}

// release deletes the content of a snapshot that ends, or lets it outlive the
// snapshot, if that is its policy and the content is whole.
func (c *contents) release(ctx context.Context, w *work) error {
	if w.content == nil {
		return nil
	}
	before := w.content.DeepCopy()
	if controllerutil.RemoveFinalizer(w.content, contentFinalizer) {
		if err := c.writer.patch(ctx, before, w.content); err != nil {
			return err
		}
	}
	if c.outlives(w) {
		return nil
	}
	err := c.client.Delete(ctx, w.content, client.Preconditions{UID: &w.content.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete snapshot content %s/%s: %w", w.content.Namespace, w.content.Name, err)
	}
	w.content = nil
	return nil
}

// waiting reports whether a PVC will be filled from a content that ends with its snapshot, and is not bound yet. Without the
// VolumeSnapshot it would never be, and its disk would be lost.
func (c *contents) waiting(ctx context.Context, w *work) (waits bool, err error) {
	if w.content == nil || !created(w.content) || c.outlives(w) {
		return false, nil
	}
	empty := func() *corev1.PersistentVolumeClaimList { return new(corev1.PersistentVolumeClaimList) }
	err = pages.Each(ctx, c.live, w.s.Namespace, empty, func(page *corev1.PersistentVolumeClaimList) (bool, error) {
		i := slices.IndexFunc(page.Items, func(pvc corev1.PersistentVolumeClaim) bool { return waitsFor(&pvc, w.content) })
		if i < 0 {
			return false, nil
		}
		c.events.Eventf(w.s, &page.Items[i], corev1.EventTypeWarning, reasonUsed, "Delete",
			"The snapshot stays until PVC %s, which is restored from it, is bound: start its VM, or delete the PVC", page.Items[i].Name)
		waits = true
		return true, nil
	})
	if errors.Is(err, pages.ErrTooMany) {
		c.events.Eventf(w.s, nil, corev1.EventTypeWarning, reasonUsed, "Delete", "The snapshot stays, since a PVC may be restored from it (%v)", err)
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("list PVCs in %s: %w", w.s.Namespace, err)
	}
	return waits, nil
}

// reasonUsed is the reason of events about snapshots that stay since something uses them.
const reasonUsed = "VirtualMachineSnapshotInUse"

// waitsFor reports whether a PVC will be filled from a VolumeSnapshot of a content, and is not bound yet.
func waitsFor(pvc *corev1.PersistentVolumeClaim, of *vmContent) bool {
	from := pvc.Spec.DataSource
	if pvc.Status.Phase == corev1.ClaimBound || pvc.DeletionTimestamp != nil || from == nil || from.Kind != volumesnapshot.Kind {
		return false
	}
	return slices.ContainsFunc(of.Spec.VolumeBackups, func(b api.VolumeBackup) bool {
		return b.VolumeSnapshotName != nil && *b.VolumeSnapshotName == from.Name
	})
}

// outlives reports whether a content stays when its snapshot goes.
func (c *contents) outlives(w *work) bool {
	p := w.s.Spec.DeletionPolicy
	return p != nil && *p == api.VirtualMachineSnapshotContentRetain && ready(w.content)
}

// kindContent is the kind of what owns VolumeSnapshots.
const kindContent = "VirtualMachineSnapshotContent"

// labelSource is a label of each content's VolumeSnapshots.
const labelSource = "snapshot.kubevirt.io/source-vm-name"

// labels returns KubeVirt's labels of a content's VolumeSnapshots.
func labels(c *vmContent) map[string]string {
	return map[string]string{
		labelSource: pod.LabelOf(c.Spec.Source.VirtualMachine.Name),
		"snapshot.kubevirt.io/source-vm-namespace": c.Spec.Source.VirtualMachine.Namespace,
	}
}

// have returns the content's VolumeSnapshots by their names.
func (c *contents) have(ctx context.Context, content *vmContent) (map[string]volumesnapshot.Snapshot, error) {
	if len(content.Spec.VolumeBackups) == 0 {
		return nil, nil
	}
	all, err := c.volumes.List(ctx, content.Namespace, labels(content))
	if err != nil {
		return nil, err
	}
	ours := map[string]volumesnapshot.Snapshot{}
	for _, b := range content.Spec.VolumeBackups {
		if b.VolumeSnapshotName == nil {
			continue
		}
		if s, ok := all[*b.VolumeSnapshotName]; ok {
			ours[s.Name] = s
		}
	}
	return ours, nil
}
