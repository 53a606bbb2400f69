package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// revisions keeps the instance type and the preference of a source, as ControllerRevisions.
type revisions struct{ revisions client.Client }

// captureAll copies the ControllerRevisions of the source's instance type and
// preference, and has the VM in the content refer to the copies: they outlive the source.
func (r *revisions) captureAll(ctx context.Context, w *work, vm *api.VirtualMachine) error {
	if m := vm.Spec.Instancetype; m != nil {
		name, err := r.capture(ctx, w, "instancetype", m.RevisionName, w.vm.Status.InstancetypeRef)
		if err != nil {
			return err
		}
		m.RevisionName = name
	}
	if m := vm.Spec.Preference; m != nil {
		name, err := r.capture(ctx, w, "preference", m.RevisionName, w.vm.Status.PreferenceRef)
		if err != nil {
			return err
		}
		m.RevisionName = name
	}
	return nil
}

// capture copies the revision that a VM's spec or status names, and returns the copy's name.
// A VM that has never had an instance may have none.
func (r *revisions) capture(ctx context.Context, w *work, what, name string, ref *kubevirt.InstancetypeStatusRef) (string, error) {
	if name == "" && ref != nil && ref.ControllerRevisionRef != nil {
		name = ref.ControllerRevisionRef.Name
	}
	if name == "" {
		return "", nil
	}
	of := new(appsv1.ControllerRevision)
	key := client.ObjectKey{Namespace: w.vm.Namespace, Name: name}
	if err := r.revisions.Get(ctx, key, of); err != nil {
		return "", fmt.Errorf("read ControllerRevision %s: %w", key, err)
	}
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: contentName(w.s) + "-" + what, Labels: maps.Clone(of.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.s, api.SchemeGroupVersion.WithKind("VirtualMachineSnapshot"))},
		},
		Data: of.Data, Revision: of.Revision,
	}
	if err := r.revisions.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
	}
	return made.Name, nil
}

// own makes the content an owner of its copies, too: a content may outlive its
// snapshot.
func (r *revisions) own(ctx context.Context, w *work) error {
	vm := w.content.Spec.Source.VirtualMachine
	var names []string
	if m := vm.Spec.Instancetype; m != nil && m.RevisionName != "" {
		names = append(names, m.RevisionName)
	}
	if m := vm.Spec.Preference; m != nil && m.RevisionName != "" {
		names = append(names, m.RevisionName)
	}
	for _, name := range names {
		revision := new(appsv1.ControllerRevision)
		if err := r.revisions.Get(ctx, client.ObjectKey{Namespace: w.content.Namespace, Name: name}, revision); err != nil {
			return fmt.Errorf("read ControllerRevision %s: %w", name, err)
		}
		if slices.ContainsFunc(revision.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.content.UID }) {
			continue
		}
		before := revision.DeepCopy()
		owner := metav1.NewControllerRef(w.content, api.SchemeGroupVersion.WithKind(kindContent))
		owner.Controller = nil
		revision.OwnerReferences = append(revision.OwnerReferences, *owner)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.revisions.Patch(ctx, revision, patch); err != nil {
			return fmt.Errorf("own ControllerRevision %s: %w", name, err)
		}
	}
	return nil
}
