package datavolume

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Create creates a DataVolume, unless it exists. It may copy a PVC or a VolumeSnapshot of another
// namespace only if the service account of the name, of the DataVolume's own namespace, may: else the
// error is a [DeniedError]. CDI itself asks what the creator may, which is the controller.
//
// A sourceRef is replaced by what its DataSource names now, so that CDI copies what was asked for. The
// returned spec has this source.
func (c *Client) Create(ctx context.Context, meta metav1.ObjectMeta, spec cdi.DataVolumeSpec, account string) (cdi.DataVolumeSpec, error) {
	dv := &cdi.DataVolume{ObjectMeta: meta, Spec: *spec.DeepCopy()}
	if err := c.resolve(ctx, dv); err != nil {
		return spec, err
	}
	if err := c.authorize(ctx, dv, account); err != nil {
		return spec, err
	}
	if err := c.create(ctx, dv); err != nil {
		return spec, err
	}
	return dv.Spec, nil
}

// CreateFilled creates a DataVolume, unless it exists, for a PVC of its name that has its content: CDI fills nothing,
// and makes the DataVolume the PVC's owner. The PVC has the annotation [AnnotationFilledFor].
//
// The DataVolume gets what a template says of its volume, but neither the source nor CDI's annotations: CDI signs, in
// a DataVolume of any source, that its creator may copy it. The creator is the controller, which may copy from every
// namespace, and the signature would outlive the annotation by which CDI fills nothing.
func (c *Client) CreateFilled(
	ctx context.Context, meta metav1.ObjectMeta, template cdi.DataVolumeSpec, size resource.Quantity,
) error {
	dv := &cdi.DataVolume{ObjectMeta: *meta.DeepCopy(), Spec: blank(template, size)}
	maps.DeleteFunc(dv.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, version().Group+"/") })
	metav1.SetMetaDataAnnotation(&dv.ObjectMeta, annotationFilled, meta.Name)
	return c.create(ctx, dv)
}

// blank returns the spec of an empty DataVolume with the volume of a template. CDI wants a size of it, which a template
// with a source need not have.
func blank(template cdi.DataVolumeSpec, size resource.Quantity) cdi.DataVolumeSpec {
	t := template.DeepCopy()
	made := cdi.DataVolumeSpec{
		Source: &cdi.DataVolumeSource{Blank: &cdi.DataVolumeBlankImage{}},
		PVC:    t.PVC, Storage: t.Storage, PriorityClassName: t.PriorityClassName, Preallocation: t.Preallocation,
	}
	switch {
	case made.PVC != nil:
		made.PVC.DataSource, made.PVC.DataSourceRef = nil, nil
		setSize(&made.PVC.Resources, size)
	case made.Storage != nil:
		made.Storage.DataSource, made.Storage.DataSourceRef = nil, nil
		setSize(&made.Storage.Resources, size)
	}
	return made
}

func setSize(of *corev1.VolumeResourceRequirements, size resource.Quantity) {
	if of.Requests.Storage().IsZero() {
		of.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
}

// MarkFilled has CDI not fill a DataVolume again when its PVC is gone: another is made for it, with the annotation
// [AnnotationFilledFor]. It adds further annotations.
func (c *Client) MarkFilled(ctx context.Context, namespace, name string, annotations map[string]string) error {
	all := map[string]string{annotationFilled: name}
	maps.Copy(all, annotations)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": all}})
	if err != nil {
		return fmt.Errorf("encode the annotations of DataVolume %s/%s: %w", namespace, name, err)
	}
	_, err = c.in(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write DataVolume %s/%s: %w", namespace, name, err)
	}
	return nil
}

// CDI's annotations: of a PVC, for which DataVolume it has its content, and of a DataVolume, which PVC has it.
const (
	AnnotationFilledFor = "cdi.kubevirt.io/storage.populatedFor"
	annotationFilled    = "cdi.kubevirt.io/storage.prePopulated"
)

func (c *Client) create(ctx context.Context, dv *cdi.DataVolume) error {
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&dv.Spec)
	if err != nil {
		return fmt.Errorf("encode the spec of DataVolume %s/%s: %w", dv.Namespace, dv.Name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": encoded}}
	object.SetGroupVersionKind(version().WithKind(Kind))
	object.SetName(dv.Name)
	object.SetNamespace(dv.Namespace)
	object.SetLabels(dv.Labels)
	object.SetAnnotations(dv.Annotations)
	object.SetOwnerReferences(dv.OwnerReferences)
	_, err = c.in(dv.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create DataVolume %s/%s: %w", dv.Namespace, dv.Name, err)
	}
	return nil
}

// resolve replaces a reference to a DataSource by the source that it has.
func (c *Client) resolve(ctx context.Context, dv *cdi.DataVolume) error {
	ref := dv.Spec.SourceRef
	if ref == nil || ref.Kind != cdi.DataVolumeDataSource {
		return nil
	}
	namespace := dv.Namespace
	if ref.Namespace != nil && *ref.Namespace != "" {
		namespace = *ref.Namespace
	}
	ds, err := c.dataSource(ctx, namespace, ref.Name)
	if err != nil {
		return err
	}
	from := ds.Spec.Source
	if from.DataSource != nil { // CDI follows a chain of them
		from = ds.Status.Source
	}
	if from.PVC == nil && from.Snapshot == nil {
		return fmt.Errorf("create DataVolume %s/%s: DataSource %s/%s has no PVC and no VolumeSnapshot yet",
			dv.Namespace, dv.Name, namespace, ref.Name)
	}
	dv.Spec.SourceRef = nil
	dv.Spec.Source = &cdi.DataVolumeSource{PVC: from.PVC, Snapshot: from.Snapshot}
	return nil
}

// dataSource reads a DataSource.
func (c *Client) dataSource(ctx context.Context, namespace, name string) (*cdi.DataSource, error) {
	object, err := c.dynamic.Resource(version().WithResource("datasources")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read DataSource %s/%s: %w", namespace, name, err)
	}
	ds := new(cdi.DataSource)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ds); err != nil {
		return nil, fmt.Errorf("read DataSource %s/%s: %w", namespace, name, err)
	}
	return ds, nil
}
