package instancetype

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	api "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// revisionOf returns the name of the VM's revision of this object; "" for none yet.
// A revision of another object does not count.
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

// Revisions returns the names of a VM's revisions.
func Revisions(vm *kubevirt.VirtualMachine) []string {
	var all []string
	for _, m := range matchers(vm) {
		if name := m.revisionOf(vm); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// Keep creates the missing revisions of a VM's types, so that its next instances are
// like its first. It returns the VM's status with their names, which the caller must
// write before it creates an instance. Errors are those of [Find], and a
// [*ConflictError] if the types do not fit the VM.
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
	if err := types.Expand(vm.Spec.Template.DeepCopy()); err != nil {
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

// revise reads the VM's revision of this object. If there is none, it makes one of
// the object, which it does not create yet.
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

// keep creates a revision, or finds that it exists.
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
	// A UID and a generation identify one content: a revision that differs is not ours.
	if !sameSpec(have.Data.Raw, text) {
		return fmt.Errorf("found existing ControllerRevision with unexpected data: %s; delete it", made.Name)
	}
	if !metav1.IsControlledBy(have, vm) {
		return fmt.Errorf("ControllerRevision %s is there, and not of VM %s; delete it", made.Name, vm.Name)
	}
	return nil
}

// sameSpec reports whether two objects, in JSON, have the same spec.
func sameSpec(a, b []byte) bool {
	var one, other struct{ Spec any }
	return decode.JSON(a, &one) == nil && decode.JSON(b, &other) == nil && reflect.DeepEqual(one, other)
}

// fromObject makes a revision of the object, with KubeVirt's name and labels.
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
	data, err := pod.RevisionData(object)
	if err != nil {
		return nil, err
	}
	generation := strconv.FormatInt(object.GetGeneration(), 10)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revisionName(fmt.Sprintf("%s-%s-%s-%s-%s",
				vm.Name, object.GetName(), api.SchemeGroupVersion.Version, object.GetUID(), generation)),
			Namespace:       vm.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
			Labels: map[string]string{
				groups.ControllerRevisionObjectGenerationLabel: generation,
				groups.ControllerRevisionObjectKindLabel:       m.kindName(),
				groups.ControllerRevisionObjectNameLabel:       pod.LabelOf(object.GetName()),
				groups.ControllerRevisionObjectUIDLabel:        string(object.GetUID()),
				groups.ControllerRevisionObjectVersionLabel:    api.SchemeGroupVersion.Version,
			},
		},
		Data: data,
	}, nil
}

// revisionName returns KubeVirt's name of a revision, shortened if no object can have it.
func revisionName(name string) string {
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	return pod.UniqueName(name, validation.DNS1123SubdomainMaxLength, name)
}
