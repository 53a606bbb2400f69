package instancetype

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	api "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// revisionOf is the name of the revision that a virtual machine has of this; "" for
// none yet. A revision of another object is none.
func (m matcher) revisionOf(vm *kubevirt.VirtualMachine) string {
	if name := m.GetRevisionName(); name != "" {
		return name
	}
	have := *m.status(&vm.Status)
	if have == nil || have.ControllerRevisionRef == nil || have.Name != m.GetName() ||
		have.Kind != "" && !strings.EqualFold(have.Kind, m.kindName()) {
		return ""
	}
	return have.ControllerRevisionRef.Name
}

// Keep sees to it that a virtual machine has revisions of its types, so that its
// next instances are as its first. It returns the virtual machine's status with
// their names, which the caller has to write before an instance is made. Errors are
// those of [Find], and a [utilerrors.Aggregate] of types that don't fit the virtual
// machine.
func Keep(
	ctx context.Context, r client.Reader, w client.Writer, vm *kubevirt.VirtualMachine,
) (*kubevirt.VirtualMachineStatus, error) {
	status := vm.Status.DeepCopy()
	if vm.Spec.Instancetype == nil {
		status.InstancetypeRef = nil
	}
	if vm.Spec.Preference == nil {
		status.PreferenceRef = nil
	}
	all := matchers(vm)
	if !slices.ContainsFunc(all, func(m matcher) bool { return m.revisionOf(vm) == "" }) {
		for _, m := range all {
			*m.status(status) = m.reference(m.revisionOf(vm))
		}
		return status, nil
	}
	var types Types
	var fresh []*appsv1.ControllerRevision
	for _, m := range all {
		revision, err := m.revise(ctx, r, vm, &types)
		if err != nil {
			return nil, err
		}
		*m.status(status) = m.reference(revision.Name)
		if revision.UID == "" {
			fresh = append(fresh, revision)
		}
	}
	if err := types.Apply(field.NewPath("spec", "template"), vm.Spec.Template.DeepCopy()).ToAggregate(); err != nil {
		return nil, err
	}
	for _, revision := range fresh {
		if err := keep(ctx, r, w, vm, revision); err != nil {
			return nil, err
		}
	}
	return status, nil
}

func (m matcher) reference(revision string) *kubevirt.InstancetypeStatusRef {
	return &kubevirt.InstancetypeStatusRef{
		Name: m.GetName(), Kind: m.kindName(),
		ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: revision},
	}
}

// revise reads the revision that a virtual machine has of this, or else makes one, not
// yet created, of what it refers to.
func (m matcher) revise(
	ctx context.Context, r client.Reader, vm *kubevirt.VirtualMachine, into *Types,
) (*appsv1.ControllerRevision, error) {
	revision := new(appsv1.ControllerRevision)
	var err error
	name := m.revisionOf(vm)
	if name != "" {
		err = r.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, revision)
	} else {
		revision, err = m.fromObject(ctx, r, vm)
	}
	if apierrors.IsNotFound(err) {
		return nil, &MissingError{m.missing, name != "", err}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m, err)
	}
	return revision, m.decode(revision, into)
}

// keep creates a revision, or finds it created.
func keep(
	ctx context.Context, r client.Reader, w client.Writer, vm *kubevirt.VirtualMachine, made *appsv1.ControllerRevision,
) error {
	text := made.Data.Raw
	err := w.Create(ctx, made)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			err = fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
		}
		return err
	}
	have := new(appsv1.ControllerRevision)
	if err := r.Get(ctx, client.ObjectKeyFromObject(made), have); err != nil {
		return fmt.Errorf("read ControllerRevision %s: %w", made.Name, err)
	}
	// Of one UID and generation there is one content: what differs is not ours.
	if !metav1.IsControlledBy(have, vm) {
		return fmt.Errorf("ControllerRevision %s is there, and not of VM %s; delete it", made.Name, vm.Name)
	}
	if !sameSpec(have.Data.Raw, text) {
		return fmt.Errorf("ControllerRevision %s is there with another content; delete it", made.Name)
	}
	return nil
}

// sameSpec tells whether two objects, in JSON, have the same spec.
func sameSpec(a, b []byte) bool {
	var one, other struct{ Spec any }
	return json.Unmarshal(a, &one) == nil && json.Unmarshal(b, &other) == nil && reflect.DeepEqual(one, other)
}

// fromObject makes a revision of what is referred to, by KubeVirt's name and labels.
func (m matcher) fromObject(
	ctx context.Context, r client.Reader, vm *kubevirt.VirtualMachine,
) (*appsv1.ControllerRevision, error) {
	object, err := m.object(ctx, r, vm.Namespace)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(api.SchemeGroupVersion.WithKind(m.kindName()))
	object.SetLabels(nil)
	object.SetAnnotations(nil)
	object.SetFinalizers(nil)
	object.SetOwnerReferences(nil)
	object.SetManagedFields(nil)
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	generation := strconv.FormatInt(object.GetGeneration(), 10)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-%s-%s-%s",
				vm.Name, object.GetName(), api.SchemeGroupVersion.Version, object.GetUID(), generation),
			Namespace:       vm.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
			Labels: map[string]string{
				groups.ControllerRevisionObjectGenerationLabel: generation,
				groups.ControllerRevisionObjectKindLabel:       m.kindName(),
				groups.ControllerRevisionObjectNameLabel:       object.GetName(),
				groups.ControllerRevisionObjectUIDLabel:        string(object.GetUID()),
				groups.ControllerRevisionObjectVersionLabel:    api.SchemeGroupVersion.Version,
			},
		},
		Data: runtime.RawExtension{Raw: text},
	}, nil
}
