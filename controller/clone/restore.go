package clone

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/restore"
)

func restoreName(c *vmClone) string { return "tmp-restore-" + string(c.UID) }

// restore returns the clone's restore, which it creates once the snapshot can be used.
func (r *Reconciler) restore(ctx context.Context, w *work) (*snapshotapi.VirtualMachineRestore, error) {
	name, rs := restoreName(w.c), new(snapshotapi.VirtualMachineRestore)
	err := r.Client.Get(ctx, w.key(name), rs)
	switch {
	case err == nil && !metav1.IsControlledBy(rs, w.c):
		return nil, fmt.Errorf("restore %s is not the clone's: delete it", name)
	case err == nil && rs.DeletionTimestamp != nil:
		return nil, wait("restore %s is being deleted", name)
	case err == nil:
		return rs, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read restore %s: %w", name, err)
	}
	s, err := r.snapshot(ctx, w)
	if err != nil {
		return nil, err
	}
	patches, err := r.differences(ctx, w, s)
	if err != nil {
		return nil, err
	}
	if err := r.vacant(ctx, w); err != nil {
		return nil, err
	}
	if w.c.Status.Phase == api.SnapshotInProgress {
		r.event(w, corev1.EventTypeNormal, "SnapshotReady", "snapshot %s for clone %s is ready to use", s.Name, w.c.Name)
	}
	w.c.Status.Phase, w.c.Status.RestoreName = api.RestoreInProgress, &name
	if err := r.write(ctx, w); err != nil {
		return nil, err
	}
	return r.createRestore(ctx, w, name, s.Name, patches)
}

func (r *Reconciler) createRestore(
	ctx context.Context, w *work, name, snapshot string, patches []string,
) (*snapshotapi.VirtualMachineRestore, error) {
	group := kubevirt.GroupVersion.Group
	rs := &snapshotapi.VirtualMachineRestore{
		ObjectMeta: w.meta(name),
		Spec: snapshotapi.VirtualMachineRestoreSpec{
			Target:                     corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kindVM, Name: targetName(w.c)},
			VirtualMachineSnapshotName: snapshot, Patches: patches,
		},
	}
	if p := w.c.Spec.VolumeNamePolicy; p != nil {
		policy := p.ToVolumeRestorePolicy()
		rs.Spec.VolumeRestorePolicy = &policy
	}
	if err := r.Client.Create(ctx, rs); err != nil {
		r.event(w, corev1.EventTypeWarning, "RestoreCreationFailed", "restore %s: %s", name, err)
		return nil, fmt.Errorf("create restore %s: %w", name, err)
	}
	r.event(w, corev1.EventTypeNormal, "RestoreCreated", "created restore %s for clone %s", name, w.c.Name)
	return rs, nil
}

// vacant halts a clone whose target exists: a restore would change that VM.
func (r *Reconciler) vacant(ctx context.Context, w *work) error {
	name := targetName(w.c)
	exists, err := r.exists(ctx, w, name)
	if err == nil && exists {
		return &halt{as: waits, event: "TargetVMExists", reason: fmt.Sprintf("VM %s exists: delete it, or name another target", name)}
	}
	return err
}

// differences returns the patches of a snapshot's VM. It fails the clone of a snapshot that is
// not whole, and with patches that do not fit.
func (r *Reconciler) differences(ctx context.Context, w *work, s *snapshotapi.VirtualMachineSnapshot) ([]string, error) {
	invalid := func(format string, args ...any) error { return failure("SnapshotContentInvalid", format, args...) }
	name, content := *s.Status.VirtualMachineSnapshotContentName, new(snapshotapi.VirtualMachineSnapshotContent)
	err := r.Client.Get(ctx, w.key(name), content)
	switch {
	case apierrors.IsNotFound(err):
		return nil, invalid("snapshot content %s does not exist", name)
	case err != nil:
		return nil, fmt.Errorf("read snapshot content %s: %w", name, err)
	}
	of := content.Spec.Source.VirtualMachine
	if of == nil || of.Spec.Template == nil {
		return nil, invalid("snapshot content %s has no VM", name)
	}
	has := map[string]bool{}
	for _, b := range content.Spec.VolumeBackups {
		has[b.VolumeName] = true
	}
	var lost []string
	for _, v := range of.Spec.Template.Spec.Volumes {
		if (v.PersistentVolumeClaim != nil || v.DataVolume != nil) && !has[v.Name] {
			lost = append(lost, fmt.Sprintf("volume %s is not backed up in snapshot %s", v.Name, s.Name))
		}
	}
	if len(lost) > 0 {
		return nil, invalid("%s", strings.Join(lost, "\n"))
	}
	all, err := patches(of, &w.c.Spec)
	if err == nil {
		_, err = restore.Patched(&kubevirt.VirtualMachine{ObjectMeta: of.ObjectMeta, Spec: of.Spec}, all)
	}
	if err != nil {
		return nil, failure("RestoreCreationFailed", "%s", err)
	}
	return all, nil
}

// restored halts a clone whose restore is not complete.
func (r *Reconciler) restored(ctx context.Context, w *work, rs *snapshotapi.VirtualMachineRestore) error {
	if n := rs.Name; w.c.Status.RestoreName == nil {
		w.c.Status.Phase, w.c.Status.RestoreName = api.RestoreInProgress, &n
	}
	complete, problem := restore.Outcome(rs)
	switch {
	case complete:
		return nil
	case problem != "":
		return failure("RestoreFailed", "restore %s failed: %s", rs.Name, problem)
	}
	s := new(snapshotapi.VirtualMachineSnapshot)
	err := r.Client.Get(ctx, w.key(rs.Spec.VirtualMachineSnapshotName), s)
	switch {
	case apierrors.IsNotFound(err) || err == nil && s.DeletionTimestamp != nil:
		return failure("SnapshotDeleted", "snapshot %s does not exist anymore", rs.Spec.VirtualMachineSnapshotName)
	case err != nil:
		return fmt.Errorf("read snapshot %s: %w", rs.Spec.VirtualMachineSnapshotName, err)
	}
	why := ""
	if rs.Status != nil {
		for _, c := range rs.Status.Conditions {
			if c.Type == snapshotapi.ConditionProgressing {
				why = c.Reason
			}
		}
	}
	return wait("restore %s is not complete%s", rs.Name, after(why))
}
