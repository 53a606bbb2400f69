package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/foreign"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// lookForSource is the time between two looks at what a PVC would be a copy of.
const lookForSource = 2 * time.Second

// sourceError says that a storage driver can't copy what a PVC would be a copy of, or not yet.
type sourceError struct{ text string }

func (e *sourceError) Error() string { return e.text }

func noSource(format string, args ...any) error { return &sourceError{fmt.Sprintf(format, args...)} }

// isSourceError reports whether a failure is about what a PVC would be a copy of.
func isSourceError(failure error) bool {
	_, is := errors.AsType[*sourceError](failure)
	return is
}

// original is the PVC or the VolumeSnapshot that a storage driver copies.
type original struct {
	// name is the kind and the name.
	name string
	// size is the least size of a copy; zero if unknown.
	size resource.Quantity
	// mode is that of a copy; "" if unknown.
	mode corev1.PersistentVolumeMode
}

// copiedFrom returns what a PVC would be a copy of; nil for nothing that the controller knows. It fails if a driver can't
// copy it yet: the PVC would wait for the driver without a word.
func (r *Reconciler) copiedFrom(ctx context.Context, namespace string, s *corev1.PersistentVolumeClaimSpec) (*original, error) {
	if name := sourceOf(namespace, s, "", kindPVC); name != "" {
		return r.copiedPVC(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	}
	snapshot := foreign.VolumeSnapshot()
	if name := sourceOf(namespace, s, snapshot.Group, snapshot.Kind); name != "" {
		return r.copiedSnapshot(ctx, client.ObjectKey{Namespace: namespace, Name: name})
	}
	return nil, nil
}

// copiedPVC returns a PVC that a driver copies. It fails if a node must fill the PVC from an image, and has not yet: the driver
// would copy an empty disk, or a part of one.
func (r *Reconciler) copiedPVC(ctx context.Context, key client.ObjectKey) (*original, error) {
	const fill = "start the VM that fills it, and wait until it runs"
	from := new(corev1.PersistentVolumeClaim)
	err := r.live.Get(ctx, key, from)
	if apierrors.IsNotFound(err) {
		return nil, noSource("PVC %s, which it copies, does not exist: create it, or correct the template's source", key.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", key, err)
	}
	if image := pod.Unfilled(from); image != "" {
		return nil, noSource("PVC %s, which it copies, is not a copy of image %s yet: %s", key.Name, image, fill)
	}
	var users kubevirt.VirtualMachineInstanceList
	if err := r.client.List(ctx, &users, client.InNamespace(key.Namespace), client.MatchingFields{index.PVC: key.Name}); err != nil {
		return nil, fmt.Errorf("list VMIs with PVC %s: %w", key, err)
	}
	for i := range users.Items {
		vmi := &users.Items[i]
		for _, use := range pod.PVCs(&vmi.Spec) {
			if use.Name == key.Name && !vmi.IsFinal() && pod.Unmarked(vmi, use, from) {
				return nil, noSource("PVC %s, which it copies, is being filled by VMI %s: %s", key.Name, vmi.Name, fill)
			}
		}
	}
	made := &original{name: "PVC " + key.Name, size: from.Spec.Resources.Requests[corev1.ResourceStorage], mode: corev1.PersistentVolumeFilesystem}
	if size, known := from.Status.Capacity[corev1.ResourceStorage]; known {
		made.size = size
	}
	if from.Spec.VolumeMode != nil {
		made.mode = *from.Spec.VolumeMode
	}
	return made, nil
}

// copiedSnapshot returns a VolumeSnapshot that a driver copies.
func (r *Reconciler) copiedSnapshot(ctx context.Context, key client.ObjectKey) (*original, error) {
	from := new(unstructured.Unstructured)
	from.SetGroupVersionKind(foreign.VolumeSnapshot().GroupVersionKind)
	err := r.live.Get(ctx, key, from)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, noSource("VolumeSnapshot %s, which it copies, does not exist: create it, or correct the template's source", key.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read VolumeSnapshot %s: %w", key, err)
	}
	if ready, _, _ := unstructured.NestedBool(from.Object, "status", "readyToUse"); !ready {
		why, _, _ := unstructured.NestedString(from.Object, "status", "error", "message")
		return nil, noSource("VolumeSnapshot %s, which it copies, is not ready to use: %s", key.Name, cmp.Or(why, "its driver has not taken it yet"))
	}
	made := &original{name: "VolumeSnapshot " + key.Name}
	text, _, _ := unstructured.NestedString(from.Object, "status", "restoreSize")
	if size, err := resource.ParseQuantity(text); err == nil {
		made.size = size
	}
	return made, nil
}

// fit makes the PVC of a template a copy that a storage driver can make: for what the template's storage leaves open, it takes
// the size and the mode of what is copied. The error begins with the path of a field below the template's spec.
func fit(spec *corev1.PersistentVolumeClaimSpec, t *kubevirt.DataVolumeTemplateSpec, from *original) error {
	field := storageField(t)
	if from != nil && t.Spec.PVC == nil && spec.VolumeMode == nil && from.mode != "" {
		spec.VolumeMode = &from.mode
	}
	mode := corev1.PersistentVolumeFilesystem
	if spec.VolumeMode != nil {
		mode = *spec.VolumeMode
	}
	if from != nil && from.mode != "" && from.mode != mode {
		return fmt.Errorf("%s.volumeMode: %w", field, noSource("%s, which it copies, is %s, and a storage driver changes no mode; set %[2]s", from.name, from.mode))
	}
	size := spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case size.IsZero() && from != nil && t.Spec.PVC == nil && !from.size.IsZero():
		spec.Resources.Requests = maps.Clone(spec.Resources.Requests)
		if spec.Resources.Requests == nil {
			spec.Resources.Requests = corev1.ResourceList{}
		}
		spec.Resources.Requests[corev1.ResourceStorage] = from.size
		return nil
	case size.IsZero():
		return fmt.Errorf("%s.resources.requests.storage: required, since the cluster has no CDI to compute it", field)
	case t.Spec.PVC == nil && sizedByDisk(t):
		addOverhead(spec)
	}
	if size = spec.Resources.Requests[corev1.ResourceStorage]; from != nil && size.Cmp(from.size) < 0 {
		return fmt.Errorf("%s.resources.requests.storage: %w", field,
			noSource("a PVC of %s is smaller than %s, which it copies; set %s or more", size.String(), from.name, from.size.String()))
	}
	return nil
}

// kindPVC is the kind of PVCs, which are in the core group.
const kindPVC = "PersistentVolumeClaim"

// sourceOf returns the name of an object of a kind that a driver copies into a PVC; "" for none.
func sourceOf(namespace string, s *corev1.PersistentVolumeClaimSpec, group, kind string) string {
	is := func(has *string) bool { return has == nil && group == "" || has != nil && *has == group }
	if from := s.DataSource; from != nil && from.Kind == kind && is(from.APIGroup) {
		return from.Name
	}
	if from := s.DataSourceRef; from != nil && from.Kind == kind && is(from.APIGroup) && (from.Namespace == nil || *from.Namespace == namespace) {
		return from.Name
	}
	return ""
}
