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
)

func snapshotName(c *vmClone) string { return "tmp-snapshot-" + string(c.UID) }

// snapshot returns the snapshot that is restored to the target, once that is possible.
func (r *Reconciler) snapshot(ctx context.Context, w *work) (*snapshotapi.VirtualMachineSnapshot, error) {
	s, err := r.source(ctx, w)
	if err != nil {
		return nil, err
	}
	switch st := s.Status; {
	case st != nil && st.Phase == snapshotapi.Failed:
		return nil, failure("SnapshotFailed", "snapshot %s failed%s", s.Name, after(progress(s)))
	case s.DeletionTimestamp != nil:
		return nil, wait("snapshot %s is being deleted", s.Name)
	case st == nil || st.ReadyToUse == nil || !*st.ReadyToUse || st.VirtualMachineSnapshotContentName == nil:
		return nil, wait("snapshot %s is not ready to use%s", s.Name, after(progress(s)))
	}
	return s, nil
}

// source returns the snapshot that is cloned, or takes one of the VM that is.
func (r *Reconciler) source(ctx context.Context, w *work) (*snapshotapi.VirtualMachineSnapshot, error) {
	s, of := new(snapshotapi.VirtualMachineSnapshot), w.c.Spec.Source
	if of.Kind == kindSnapshot {
		err := r.Client.Get(ctx, w.key(of.Name), s)
		if apierrors.IsNotFound(err) {
			return nil, missing(w)
		}
		if err != nil {
			return nil, fmt.Errorf("read snapshot %s: %w", of.Name, err)
		}
		return s, r.begin(ctx, w)
	}
	name := snapshotName(w.c)
	err := r.Client.Get(ctx, w.key(name), s)
	switch {
	case err == nil && !metav1.IsControlledBy(s, w.c):
		return nil, fmt.Errorf("snapshot %s is not the clone's: delete it", name)
	case err == nil:
		w.c.Status.SnapshotName = &name
		return s, r.begin(ctx, w)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	return r.takeSnapshot(ctx, w, name)
}

// begin records that the clone is under way.
func (r *Reconciler) begin(ctx context.Context, w *work) error {
	if w.c.Status.Phase == api.PhaseUnset {
		w.c.Status.Phase = api.SnapshotInProgress
	}
	return r.write(ctx, w)
}

// takeSnapshot creates a snapshot of the VM that is cloned.
func (r *Reconciler) takeSnapshot(ctx context.Context, w *work, name string) (*snapshotapi.VirtualMachineSnapshot, error) {
	vm := new(kubevirt.VirtualMachine)
	err := r.Client.Get(ctx, w.key(w.c.Spec.Source.Name), vm)
	switch {
	case apierrors.IsNotFound(err):
		return nil, missing(w)
	case err != nil:
		return nil, fmt.Errorf("read VM %s: %w", w.c.Spec.Source.Name, err)
	}
	if why := unsnapshottable(vm); why != "" {
		return nil, &halt{as: waits, event: "VMVolumeSnapshotsInvalid", reason: why}
	}
	if err := r.vacant(ctx, w); err != nil {
		return nil, err
	}
	w.c.Status.SnapshotName = &name
	if err := r.begin(ctx, w); err != nil {
		return nil, err
	}
	group := kubevirt.GroupVersion.Group
	s := &snapshotapi.VirtualMachineSnapshot{ObjectMeta: w.meta(name)}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kindVM, Name: vm.Name}
	if err := r.Client.Create(ctx, s); err != nil {
		return nil, fmt.Errorf("create snapshot %s: %w", name, err)
	}
	r.event(w, corev1.EventTypeNormal, "SnapshotCreated", "created snapshot %s for clone %s", name, w.c.Name)
	return s, nil
}

// missing says that the source does not exist.
func missing(w *work) error {
	return &halt{
		as: waits, event: reasonNoSource, reason: fmt.Sprintf("Source doesnt exist: %s %s", w.c.Spec.Source.Kind, w.key(w.c.Spec.Source.Name)),
	}
}

// unsnapshottable returns which disks of a VM a snapshot would leave out; "" for none.
func unsnapshottable(vm *kubevirt.VirtualMachine) string {
	if vm.Spec.Template == nil {
		return "the source has no template"
	}
	states := map[string]kubevirt.VolumeSnapshotStatus{}
	for _, s := range vm.Status.VolumeSnapshotStatuses {
		states[s.Name] = s
	}
	var all []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim == nil && v.DataVolume == nil {
			continue
		}
		switch s, known := states[v.Name]; {
		case !known:
			all = append(all, fmt.Sprintf("Virtual Machine volume %s snapshot support unknown", v.Name))
		case !s.Enabled:
			all = append(all, fmt.Sprintf("Virtual Machine volume %s does not support snapshots: %s", v.Name, s.Reason))
		}
	}
	return strings.Join(all, "\n")
}

// progress returns what a snapshot waits for, or why it failed.
func progress(s *snapshotapi.VirtualMachineSnapshot) string {
	if s.Status == nil {
		return ""
	}
	if e := s.Status.Error; e != nil && e.Message != nil {
		return *e.Message
	}
	failure, reason := "", ""
	for _, c := range s.Status.Conditions {
		switch c.Type {
		case snapshotapi.ConditionFailure:
			failure = c.Reason + after(c.Message)
		case snapshotapi.ConditionProgressing:
			reason = c.Reason
		}
	}
	if failure != "" {
		return failure
	}
	return reason
}
