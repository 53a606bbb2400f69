package instancetype

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	api "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
)

// Upgrade copies revisions that early versions of KubeVirt made, which have no version in
// their labels or an old one, and changes status to refer to the copies. It returns the
// revisions that the caller deletes after it has written status. A revision that the VM's
// author names in its spec stays.
func Upgrade(
	ctx context.Context, r client.Reader, w client.Writer, vm *kubevirt.VirtualMachine, status *kubevirt.VirtualMachineStatus,
) ([]*appsv1.ControllerRevision, error) {
	const version = "-" + groups.LatestVersion + "-" // is in the name of each revision made since
	var old []*appsv1.ControllerRevision
	for _, m := range matchers(vm) {
		name := m.revisionOf(vm)
		if name == "" || m.GetRevisionName() != "" || strings.Contains(name, version) {
			continue
		}
		have := new(appsv1.ControllerRevision)
		err := r.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: name}, have)
		if apierrors.IsNotFound(err) {
			continue // Find reports it
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", m, err)
		}
		if !metav1.IsControlledBy(have, vm) || have.Labels[groups.ControllerRevisionObjectVersionLabel] == groups.LatestVersion {
			continue
		}
		made, err := upgraded(vm, have)
		if err != nil {
			return nil, err
		}
		if err := m.decode(made, new(Types)); err != nil {
			return nil, err
		}
		if err := keep(ctx, r, w, vm, made); err != nil {
			return nil, err
		}
		*m.status(status) = m.reference(made.Name)
		old = append(old, have)
	}
	return old, nil
}

// upgraded is a copy of a revision with the name, the labels and the object's version of
// those that are made today.
func upgraded(vm *kubevirt.VirtualMachine, old *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	var object map[string]any
	if err := decode.JSON(old.Data.Raw, &object); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", old.Name, err)
	}
	object["apiVersion"] = api.SchemeGroupVersion.String()
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", old.Name, err)
	}
	labels := maps.Clone(old.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[groups.ControllerRevisionObjectVersionLabel] = groups.LatestVersion
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: strings.Join([]string{
				vm.Name, labels[groups.ControllerRevisionObjectNameLabel], groups.LatestVersion,
				labels[groups.ControllerRevisionObjectUIDLabel], labels[groups.ControllerRevisionObjectGenerationLabel],
			}, "-"),
			Namespace: vm.Namespace, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
		},
		Data: runtime.RawExtension{Raw: raw},
	}, nil
}
