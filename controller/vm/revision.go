package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// keepRevision creates the ControllerRevision of the spec that the next instance is
// created from, with KubeVirt's name and content, and deletes that of the instance
// before.
func (r *Reconciler) keepRevision(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	data, err := revisionData(vm)
	if err != nil {
		return err
	}
	made := revision(vm, vm.Generation)
	made.Labels = map[string]string{kubevirt.CreatedByLabel: string(vm.UID)}
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	made.Data.Raw, made.Revision = data, vm.Generation
	err = r.revisions.Create(ctx, made)
	had := apierrors.IsAlreadyExists(err)
	if err != nil && !had {
		return fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
	}
	former := vm.Status.ObservedGeneration // of the last instance
	switch {
	case former == 0, former == vm.Generation && had:
		return nil // there is no other
	case former != vm.Generation:
		err := r.revisions.Delete(ctx, revision(vm, former))
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete ControllerRevision %s: %w", pod.RevisionName(vm.UID, strconv.FormatInt(former, 10)), err)
		}
	}
	return r.deleteOthers(ctx, vm, made.Name)
}

// maxRevisions bounds the revisions that are read at once.
const maxRevisions = 100

// deleteOthers deletes the revisions of former starts. An edit that needed no restart has
// raised the generation of the last instance since its start: the generation does not name
// the revision then.
func (r *Reconciler) deleteOthers(ctx context.Context, vm *kubevirt.VirtualMachine, keep string) error {
	var all metav1.PartialObjectMetadataList // anyone can make large ones with the label
	all.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	err := r.live.List(ctx, &all, client.InNamespace(vm.Namespace),
		client.MatchingLabels{kubevirt.CreatedByLabel: string(vm.UID)}, client.Limit(maxRevisions))
	if err != nil {
		return fmt.Errorf("list the ControllerRevisions of VM %s: %w", vm.Name, err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		if one.Name == keep || !metav1.IsControlledBy(one, vm) || !strings.HasPrefix(one.Name, pod.RevisionName(vm.UID, "")) {
			continue
		}
		if err := r.revisions.Delete(ctx, one); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", one.Name, err)
		}
	}
	return nil
}

func revision(vm *kubevirt.VirtualMachine, generation int64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: pod.RevisionName(vm.UID, strconv.FormatInt(generation, 10)),
	}}
}

// revisionData encodes a VirtualMachine's spec, with the revisions of its instance type and
// preference, as [pod.RevisionData] does: the keys of a map are sorted. The spec is the one that
// the instance will have, and as with KubeVirt in the form of the API's types.
func revisionData(vm *kubevirt.VirtualMachine) ([]byte, error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&vm.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec of VM %s: %w", vm.Name, err)
	}
	name := func(matcher string, of *kubevirt.InstancetypeStatusRef) {
		if given, ok := spec[matcher].(map[string]any); ok && of != nil && of.ControllerRevisionRef != nil {
			given["revisionName"] = of.ControllerRevisionRef.Name
		}
	}
	name("instancetype", vm.Status.InstancetypeRef)
	name("preference", vm.Status.PreferenceRef)
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, fmt.Errorf("encode the spec of VM %s: %w", vm.Name, err)
	}
	return data, nil
}
