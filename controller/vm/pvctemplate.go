package vm

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

const annotationOrigin = pod.AnnotationOrigin

// errNeedsCDI is the error for templates that only CDI can fill.
var errNeedsCDI = errors.New("needs CDI (Containerized Data Importer), which this cluster does not have; " +
	"install it, or use registry, blank, pvc or snapshot")

// snapshots is the API group of VolumeSnapshots.
const snapshots = "snapshot.storage.k8s.io"

// pvcOf returns the PVC of a template of a DataVolume, without metadata, for a cluster
// without CDI. Its size may be missing, see [fit]. The error begins with the path of a field below the template's spec.
func pvcOf(namespace string, t *kubevirt.DataVolumeTemplateSpec) (*corev1.PersistentVolumeClaim, error) {
	pvc := new(corev1.PersistentVolumeClaim)
	switch s := &t.Spec; {
	case s.PVC != nil:
		s.PVC.DeepCopyInto(&pvc.Spec)
	case s.Storage != nil:
		storage := s.Storage.DeepCopy()
		pvc.Spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: storage.AccessModes, Selector: storage.Selector, Resources: storage.Resources, VolumeName: storage.VolumeName,
			StorageClassName: storage.StorageClassName, VolumeMode: storage.VolumeMode,
			DataSource: storage.DataSource, DataSourceRef: storage.DataSourceRef,
		}
	}
	if len(pvc.Spec.AccessModes) == 0 {
		pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return pvc, addSource(&pvc.Spec, namespace, t)
}

// sizedByDisk reports whether the size that a template names is that of the disk which a node makes on the PVC, or that the
// PVC is a copy of.
func sizedByDisk(t *kubevirt.DataVolumeTemplateSpec) bool {
	return t.Spec.Source != nil && t.Spec.Storage.VolumeName == "" && t.Spec.Storage.Selector == nil
}

// addOverhead makes a PVC with a file system so large that the disk has the size that the PVC asked for: a node leaves a
// twentieth of the PVC to the file system. As with CDI, this is for spec.storage; spec.pvc has the PVC's size.
func addOverhead(spec *corev1.PersistentVolumeClaimSpec) {
	if spec.VolumeMode != nil && *spec.VolumeMode == corev1.PersistentVolumeBlock {
		return
	}
	size := wholeMebibytes(spec.Resources.Requests.Storage().Value())
	total := resource.NewQuantity(wholeMebibytes((size+94)/95*100), resource.BinarySI)
	spec.Resources.Requests = maps.Clone(spec.Resources.Requests)
	spec.Resources.Requests[corev1.ResourceStorage] = *total
}

// wholeMebibytes rounds a size in bytes up to a MiB.
func wholeMebibytes(size int64) int64 {
	const mebibyte = 1 << 20
	return (size + mebibyte - 1) / mebibyte * mebibyte
}

func storageField(t *kubevirt.DataVolumeTemplateSpec) string {
	if t.Spec.PVC != nil {
		return "pvc"
	}
	return "storage"
}

// addSource sets where the storage's provisioner copies the volume from. A node copies
// an image, at the first use.
func addSource(spec *corev1.PersistentVolumeClaimSpec, namespace string, t *kubevirt.DataVolumeTemplateSpec) error {
	s := t.Spec.Source
	switch {
	case t.Spec.SourceRef != nil:
		return fmt.Errorf("sourceRef: %w", errNeedsCDI)
	case s == nil: // then it is in dataSource, as admission has checked
		return nil
	case s.Blank != nil:
		return nil
	case s.PVC != nil:
		if s.PVC.Namespace != "" && s.PVC.Namespace != namespace {
			return fmt.Errorf("source.pvc.namespace: a PVC of another namespace %w", errNeedsCDI)
		}
		spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: s.PVC.Name}
	case s.Snapshot != nil:
		if s.Snapshot.Namespace != "" && s.Snapshot.Namespace != namespace {
			return fmt.Errorf("source.snapshot.namespace: a snapshot of another namespace %w", errNeedsCDI)
		}
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshots), Kind: "VolumeSnapshot", Name: s.Snapshot.Name}
	case s.Registry == nil:
		return fmt.Errorf("source.%s: %w", sourceName(t), errNeedsCDI)
	case s.Registry.SecretRef != nil:
		return fmt.Errorf("source.registry.secretRef: %w, and the imagePullSecrets of the VM's service account for a login", errNeedsCDI)
	case s.Registry.CertConfigMap != nil || s.Registry.ImageStream != nil:
		return fmt.Errorf("source.registry: certConfigMap and imageStream: %w", errNeedsCDI)
	case originOf(t) == "":
		return fmt.Errorf("source.registry.url: docker://IMAGE is copied by the node; another URL %w", errNeedsCDI)
	}
	return nil
}

// originOf returns the image of a template; "" if it has none.
func originOf(t *kubevirt.DataVolumeTemplateSpec) string {
	if s := t.Spec.Source; s != nil && s.Registry != nil && s.Registry.URL != nil {
		if image, ok := strings.CutPrefix(*s.Registry.URL, "docker://"); ok {
			return image
		}
	}
	return ""
}

// sourceName returns the field of a source that only CDI knows.
func sourceName(t *kubevirt.DataVolumeTemplateSpec) string {
	switch s := t.Spec.Source; {
	case s.HTTP != nil:
		return "http"
	case s.S3 != nil:
		return "s3"
	case s.GCS != nil:
		return "gcs"
	case s.Upload != nil:
		return "upload"
	case s.Imageio != nil:
		return "imageio"
	}
	return "vddk"
}
