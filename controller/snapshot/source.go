package snapshot

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// work is a snapshot with what the cluster knows of its source and content.
type work struct {
	s *vmSnapshot
	// was is the snapshot as it was last read or written.
	was *vmSnapshot
	// vm is the source; nil if there is none.
	vm *kubevirt.VirtualMachine
	// vmi is the source's instance; nil for none, or one that has ended.
	vmi     *instance
	content *vmContent
	// locked says that the source is locked for this snapshot.
	locked bool
	// refused is why the VolumeSnapshots could not be created at this attempt. As with KubeVirt, the content has no
	// status then.
	refused string
}

// writes reports whether the source's guest may write and can be frozen: it runs, and has
// an agent.
func (w *work) writes() bool {
	return w.vmi != nil && w.vmi.Status.Phase == kubevirt.Running && w.vmi.DeletionTimestamp == nil &&
		has(w.vmi, kubevirt.VirtualMachineInstanceAgentConnected) && !has(w.vmi, kubevirt.VirtualMachineInstancePaused)
}

func has(vmi *instance, kind kubevirt.VirtualMachineInstanceConditionType) bool {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// look reads what belongs to a snapshot. A VM that has taken the place of the source is not
// the source.
func (r *Reconciler) look(ctx context.Context, s *vmSnapshot) (*work, error) {
	w := &work{s: s, was: s.DeepCopy()}
	key := client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Source.Name}
	vm := new(kubevirt.VirtualMachine)
	switch err := r.client.Get(ctx, key, vm); {
	case err == nil && (s.Status == nil || s.Status.SourceUID == nil || *s.Status.SourceUID == vm.UID):
		w.vm = vm
		in := vm.Status.SnapshotInProgress
		w.locked = in != nil && *in == s.Name && controllerutil.ContainsFinalizer(vm, sourceFinalizer)
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read VM %s: %w", key, err)
	}
	vmi := new(instance)
	switch err := r.client.Get(ctx, key, vmi); {
	case err == nil && w.vm != nil && metav1.IsControlledBy(vmi, w.vm) && !vmi.IsFinal():
		w.vmi = vmi
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read VMI %s: %w", key, err)
	}
	content := new(vmContent)
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: contentName(s)}, content); {
	case err == nil:
		w.content = content
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read snapshot content %s: %w", contentName(s), err)
	}
	return w, nil
}

// sources locks and releases the VMs of snapshots.
type sources struct {
	client      client.Client
	live        client.Reader
	volumes     volumes
	dataVolumes dataVolumes
	usage       usage
	writer      patcher
}

// lock reserves the source for a snapshot. If it cannot yet, it returns why.
func (l *sources) lock(ctx context.Context, w *work) (why string, err error) {
	why, err = l.unlockable(ctx, w)
	if err != nil || why != "" {
		return why, err
	}
	if w.vm.Status.SnapshotInProgress == nil {
		before := w.vm.DeepCopy()
		w.vm.Status.SnapshotInProgress = &w.s.Name
		if err := l.writer.patchStatus(ctx, before, w.vm); err != nil {
			return "", err
		}
	}
	before := w.vm.DeepCopy()
	if controllerutil.AddFinalizer(w.vm, sourceFinalizer) {
		if err := l.writer.patch(ctx, before, w.vm); err != nil {
			return "", err
		}
	}
	w.locked = true
	return "", nil
}

// unlockable returns why a snapshot of the source cannot begin yet; "" if it can.
func (l *sources) unlockable(ctx context.Context, w *work) (string, error) {
	switch in := w.vm.Status.SnapshotInProgress; {
	case w.vm.DeletionTimestamp != nil:
		return "source is being deleted", nil
	case w.vm.Spec.Template == nil:
		return "source has no template", nil
	case in != nil && *in != w.s.Name:
		return fmt.Sprintf("snapshot %q in progress", *in), nil
	case w.vm.Status.RestoreInProgress != nil:
		return fmt.Sprintf("restore %q in progress", *w.vm.Status.RestoreInProgress), nil
	case w.vmi != nil && instances.Migrating(w.vmi):
		return "source is being migrated", nil
	}
	if wantsMemory(w.s) && (w.vmi == nil || w.vmi.Status.Phase != kubevirt.Running) {
		return "source does not run, and the snapshot must have its memory", nil
	}
	used, err := l.usage.of(ctx, w)
	if err != nil {
		return "", err
	}
	uses, err := state.PVCs(ctx, l.client, used)
	if err != nil {
		return "", err
	}
	for _, use := range uses {
		why, err := l.unfit(ctx, w, use)
		if why != "" { // in KubeVirt's words
			why = fmt.Sprintf("source %s/%s %s", w.vm.Namespace, w.vm.Name, why)
		}
		if err != nil || why != "" {
			return why, err
		}
	}
	if len(uses) == 0 {
		return "", nil
	}
	classes, served, err := l.volumes.Classes(ctx)
	switch {
	case err != nil:
		return "", err
	case !served:
		return "source has PVCs, and the cluster does not serve snapshot.storage.k8s.io/v1: install external-snapshotter", nil
	case len(classes) == 0: // it is being installed: without a class, the snapshot would leave out all PVCs
		return "source has PVCs, and the cluster has no VolumeSnapshotClass: create one for their CSI driver", nil
	}
	if w.vmi != nil {
		return "", nil
	}
	return l.inUse(ctx, w, uses)
}

// unfit returns why a PVC's content is not complete; "" if it is.
func (l *sources) unfit(ctx context.Context, w *work, use pod.PVC) (string, error) {
	key := client.ObjectKey{Namespace: w.vm.Namespace, Name: use.Name}
	pvc := new(corev1.PersistentVolumeClaim)
	err := l.client.Get(ctx, key, pvc)
	switch {
	case apierrors.IsNotFound(err):
		return "volume doesnt exist: " + use.Name, nil
	case err != nil:
		return "", fmt.Errorf("read PVC %s: %w", key, err)
	case pvc.DeletionTimestamp != nil:
		return "volume is being deleted: " + use.Name, nil
	case pvc.Status.Phase != corev1.ClaimBound:
		return "volume not bound: " + use.Name, nil
	case pod.Unfilled(pvc) != "" || pod.FillsByCDI(pvc):
		return "volume not populated: " + use.Name, nil
	case !use.DataVolume:
		return "", nil
	}
	state, err := l.dataVolumes.Get(ctx, key.Namespace, key.Name)
	if err == nil && state.Found && !state.Filled() {
		return "volume not populated: " + use.Name, nil
	}
	return "", err
}

// inUse returns which pods use the PVCs of a VM that does not run.
func (l *sources) inUse(ctx context.Context, w *work, uses []pod.PVC) (string, error) {
	names := map[string]bool{}
	for _, use := range uses {
		names[use.Name] = true
	}
	user := ""
	err := pages.Each(ctx, l.live, w.vm.Namespace, func() *corev1.PodList { return new(corev1.PodList) }, func(page *corev1.PodList) (bool, error) {
		for i := range page.Items {
			if claim := usedBy(&page.Items[i], names); claim != "" {
				user = fmt.Sprintf("source is offline but pod %s uses PVC %s", page.Items[i].Name, claim)
				return true, nil
			}
		}
		return false, nil
	}, pages.Unfinished())
	if errors.Is(err, pages.ErrTooMany) {
		return fmt.Sprintf("source is offline but a pod may use its PVCs (%v)", err), nil
	}
	if err != nil {
		return "", fmt.Errorf("list pods in %s: %w", w.vm.Namespace, err)
	}
	return user, nil
}

// usedBy returns which of some PVCs a pod uses that has not ended; "" for none.
func usedBy(p *corev1.Pod, names map[string]bool) string {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return ""
	}
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && names[c.ClaimName] {
			return c.ClaimName
		}
	}
	return ""
}

// unlock releases the source, unless another snapshot has locked it.
func (l *sources) unlock(ctx context.Context, w *work) error {
	if w.vm == nil || w.vm.Status.SnapshotInProgress == nil || *w.vm.Status.SnapshotInProgress != w.s.Name {
		return nil
	}
	before := w.vm.DeepCopy()
	if controllerutil.RemoveFinalizer(w.vm, sourceFinalizer) {
		if err := l.writer.patch(ctx, before, w.vm); err != nil {
			return err
		}
	}
	before = w.vm.DeepCopy()
	w.vm.Status.SnapshotInProgress = nil
	w.locked = false
	return l.writer.patchStatus(ctx, before, w.vm)
}
