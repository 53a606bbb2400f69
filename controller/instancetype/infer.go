package instancetype

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/foreign"
)

// Inferred is what the labels of a volume's source say about one matcher of a VM.
type Inferred struct {
	// Matcher is the matcher's field in the VM's spec.
	Matcher string
	// Name and Kind are those of the type. Name is empty if no label names one, and the VM does without.
	Name, Kind string
	// Ignore says that the VM does without a type whose name can't be inferred.
	Ignore bool
}

// Infer reads the names that inferFromVolume asks for, as KubeVirt does: in the labels of the PVC, the DataVolume, the
// DataSource or the VolumeSnapshot that a volume comes from. The problems have paths below spec.
func Infer(
	ctx context.Context, live client.Reader, spec *field.Path, vm *kubevirt.VirtualMachine,
) ([]Inferred, field.ErrorList, error) {
	var all []Inferred
	var problems field.ErrorList
	for _, m := range matchers(vm) {
		volume := m.GetInferFromVolume()
		if volume == "" {
			continue
		}
		at := spec.Child(m.field, "inferFromVolume")
		if m.GetName() != "" {
			problems = append(problems, field.Forbidden(at, "name is given too; use one of them"))
			continue
		}
		policy := m.GetInferFromVolumeFailurePolicy()
		found := Inferred{Matcher: m.field, Ignore: policy != nil && *policy == kubevirt.IgnoreInferFromVolumeFailure}
		labels, err := labelled(ctx, live, vm, volume, m.nameLabel)
		switch detail := err.(type) { //nolint:errorlint // labelled does not wrap it
		case nil:
			found.Name, found.Kind = labels[m.nameLabel], labels[m.kindLabel]
		case *inferError:
			if !detail.ignorable || !found.Ignore {
				problems = append(problems, field.Invalid(at, volume, detail.text))
				continue
			}
		default:
			return nil, nil, err
		}
		all = append(all, found)
	}
	return all, problems, nil
}

// inferError says why no name can be inferred.
type inferError struct {
	text string
	// ignorable says that the policy may ignore it: nothing that the VM names is missing.
	ignorable bool
}

func (e *inferError) Error() string { return e.text }

// source is an object that a volume comes from, directly or not.
type source struct{ kind, namespace, name string }

const (
	kindPVC        = "PersistentVolumeClaim"
	kindDataVolume = "DataVolume"
	kindSnapshot   = "VolumeSnapshot"
)

func (s source) String() string { return fmt.Sprintf("%s %s/%s", s.kind, s.namespace, s.name) }

// maxSources bounds how many objects lead from a volume to the labels.
const maxSources = 8

// labelled returns the labels of the first object behind a volume that has a label. The error is an *inferError if there
// is none.
func labelled(ctx context.Context, live client.Reader, vm *kubevirt.VirtualMachine, volume, label string) (map[string]string, error) {
	labels, next, err := sourceOf(vm, volume)
	if err != nil {
		return nil, err
	}
	last := "the volume's template"
	for depth := range maxSources {
		if labels[label] != "" {
			return labels, nil
		}
		if next == nil {
			break
		}
		if depth == 0 || next.namespace == vm.Namespace { // others of another namespace are not the author's to know
			last = next.String()
		}
		if labels, next, err = next.read(ctx, live, vm.Namespace); err != nil {
			return nil, err
		}
	}
	return nil, &inferError{last + " has no label " + label + "; add it, or use name", true}
}

// sourceOf returns where a volume comes from, and the labels that the VM itself gives it.
func sourceOf(vm *kubevirt.VirtualMachine, volume string) (map[string]string, *source, error) {
	for _, v := range vm.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.PersistentVolumeClaim != nil:
			return nil, &source{kindPVC, vm.Namespace, v.PersistentVolumeClaim.ClaimName}, nil
		case v.DataVolume != nil:
			for _, t := range vm.Spec.DataVolumeTemplates {
				if t.Name == v.DataVolume.Name {
					return t.Labels, behind(vm.Namespace, t.Spec.Source, t.Spec.SourceRef), nil
				}
			}
			return nil, &source{kindDataVolume, vm.Namespace, v.DataVolume.Name}, nil
		default:
			return nil, nil, &inferError{"the volume is neither a persistentVolumeClaim nor a dataVolume", true}
		}
	}
	return nil, nil, &inferError{"the template has no such volume", false}
}

// behind returns what the data of a DataVolume comes from; nil if it has no labels.
func behind(namespace string, from *cdi.DataVolumeSource, ref *cdi.DataVolumeSourceRef) *source {
	switch {
	case from != nil && from.PVC != nil:
		return in(namespace, kindPVC, from.PVC.Namespace, from.PVC.Name)
	case from != nil && from.Snapshot != nil:
		return in(namespace, kindSnapshot, from.Snapshot.Namespace, from.Snapshot.Name)
	case ref != nil && ref.Kind == cdi.DataVolumeDataSource:
		if ref.Namespace != nil {
			return in(namespace, ref.Kind, *ref.Namespace, ref.Name)
		}
		return in(namespace, ref.Kind, "", ref.Name)
	}
	return nil
}

func in(otherwise, kind, namespace, name string) *source {
	if namespace == "" {
		namespace = otherwise
	}
	return &source{kind, namespace, name}
}

// read returns an object's labels, and what is behind it. In another namespace than the VM's an object that does not
// exist is as one without labels: the VM's author need not know.
func (s source) read(ctx context.Context, live client.Reader, own string) (map[string]string, *source, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(s.version().WithKind(s.kind))
	err := live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, object)
	switch absent := apierrors.IsNotFound(err) || meta.IsNoMatchError(err); {
	case absent && s.kind == kindDataVolume: // CDI may delete it once it has filled its PVC
		return nil, &source{kindPVC, s.namespace, s.name}, nil
	case absent && s.namespace != own:
		return nil, nil, nil
	case absent:
		return nil, nil, &inferError{s.String() + " does not exist; create it first, or use name", false}
	case err != nil:
		return nil, nil, fmt.Errorf("read %s: %w", s, err)
	}
	next, err := s.next(object)
	return object.GetLabels(), next, err
}

// next returns what is behind an object; nil if its labels are the last.
func (s source) next(object *unstructured.Unstructured) (*source, error) {
	tree, ok := object.Object["spec"].(map[string]any)
	if !ok || s.version() != cdi.SchemeGroupVersion {
		return nil, nil
	}
	var dataVolume struct {
		Source    *cdi.DataVolumeSource    `json:"source"`
		SourceRef *cdi.DataVolumeSourceRef `json:"sourceRef"`
	}
	var dataSource cdi.DataSourceSpec
	var into any = &dataVolume
	if s.kind == cdi.DataVolumeDataSource {
		into = &dataSource
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, into); err != nil {
		return nil, fmt.Errorf("decode %s: %w", s, err)
	}
	if s.kind != cdi.DataVolumeDataSource {
		return behind(s.namespace, dataVolume.Source, dataVolume.SourceRef), nil
	}
	if other := dataSource.Source.DataSource; other != nil {
		return in(s.namespace, s.kind, other.Namespace, other.Name), nil
	}
	return behind(s.namespace, &cdi.DataVolumeSource{PVC: dataSource.Source.PVC, Snapshot: dataSource.Source.Snapshot}, nil), nil
}

// version returns the API that serves an object.
func (s source) version() schema.GroupVersion {
	switch s.kind {
	case kindPVC:
		return corev1.SchemeGroupVersion
	case kindSnapshot:
		return foreign.VolumeSnapshot().GroupVersion()
	}
	return cdi.SchemeGroupVersion
}
