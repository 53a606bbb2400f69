package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// DataVolumes reads, creates and releases CDI's objects, as [datavolume.Client] does.
type DataVolumes interface {
	Get(ctx context.Context, namespace, name string) (datavolume.State, error)
	Create(ctx context.Context, meta metav1.ObjectMeta, spec cdi.DataVolumeSpec, account string) (cdi.DataVolumeSpec, error)
	ChangeOwners(ctx context.Context, namespace, name string, change func([]metav1.OwnerReference) []metav1.OwnerReference) error
}

// KubeVirt's reasons: a DataVolume that cannot be created, one whose source the VM may not copy, and one whose source
// does not exist yet.
const (
	reasonDataVolume = "FailedDataVolumeCreate"
	reasonDenied     = "UnauthorizedDataVolumeCreate"
	reasonNoSource   = "SourcePVCNotAvailabe"
)

// lookForCDI is the time between two looks whether the cluster has CDI.
const lookForCDI = time.Minute

// templateError says that the controller cannot create the PVC of a template.
type templateError struct{ error }

func (e templateError) Unwrap() error { return e.error }

// createDataVolumes creates the DataVolume of each of a VirtualMachine's templates or,
// in a cluster without CDI, the PVC. It leaves alone what exists. A VM may ask that this waits for its start: tools that
// restore backups bring their PVCs before. A restore brings the PVCs, too: while it puts one into the place of another, none
// has the name.
func (r *Reconciler) createDataVolumes(ctx context.Context, vm *kubevirt.VirtualMachine, starts bool) error {
	if vm.Status.RestoreInProgress != nil || !starts && vm.Annotations[kubevirt.ImmediateDataVolumeCreation] == "false" {
		return nil
	}
	for i := range vm.Spec.DataVolumeTemplates {
		t := &vm.Spec.DataVolumeTemplates[i]
		key := client.ObjectKey{Namespace: vm.Namespace, Name: t.Name}
		has := new(corev1.PersistentVolumeClaim)
		err := r.client.Get(ctx, key, has)
		if err == nil {
			if err := r.correctOrigin(ctx, vm, t, has); err != nil {
				return err
			}
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read PVC %s: %w", key, err)
		}
		state, err := r.dataVolumes.Get(ctx, vm.Namespace, t.Name)
		switch {
		case err != nil:
			return err
		case state.Found:
		case state.Served:
			err = r.createDataVolume(ctx, vm, t)
		default:
			err = r.createPVC(ctx, vm, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) createDataVolume(ctx context.Context, vm *kubevirt.VirtualMachine, t *kubevirt.DataVolumeTemplateSpec) error {
	made, err := r.dataVolumes.Create(ctx, ownedBy(vm, t), t.Spec, accountOf(vm))
	if _, denied := errors.AsType[*datavolume.DeniedError](err); denied {
		r.events.Eventf(vm, nil, corev1.EventTypeWarning, reasonDenied, "Create", "Not authorized to create DataVolume %s: %s", t.Name, err)
		return templateError{fmt.Errorf("create DataVolume %s/%s: %w", vm.Namespace, t.Name, err)}
	}
	if err != nil {
		return templateError{err}
	}
	r.events.Eventf(vm, nil, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "Create", "Created DataVolume %s", t.Name)
	if made.Source == nil || made.Source.PVC == nil {
		return nil
	}
	from := client.ObjectKey{Namespace: cmp.Or(made.Source.PVC.Namespace, vm.Namespace), Name: made.Source.PVC.Name}
	if err := r.client.Get(ctx, from, new(corev1.PersistentVolumeClaim)); apierrors.IsNotFound(err) {
		r.events.Eventf(vm, nil, corev1.EventTypeWarning, reasonNoSource, "Create", "DataVolume %s waits for PVC %s, which it copies", t.Name, from)
	}
	return nil
}

// accountOf returns the service account by whose permissions a VM's DataVolumes copy: KubeVirt takes that of a volume.
func accountOf(vm *kubevirt.VirtualMachine) string {
	account := "default"
	for _, v := range vm.Spec.Template.Spec.Volumes {
		if v.ServiceAccount != nil {
			account = v.ServiceAccount.ServiceAccountName
		}
	}
	return account
}

func (r *Reconciler) createPVC(ctx context.Context, vm *kubevirt.VirtualMachine, i int) error {
	t := &vm.Spec.DataVolumeTemplates[i]
	pvc, err := pvcOf(vm.Namespace, t)
	if err != nil {
		return templateError{fmt.Errorf("spec.dataVolumeTemplates[%d].spec.%w", i, err)}
	}
	from, err := r.copiedFrom(ctx, vm.Namespace, &pvc.Spec)
	if err != nil {
		return templateError{fmt.Errorf("create PVC %s/%s: %w", vm.Namespace, t.Name, err)}
	}
	if err := fit(&pvc.Spec, t, from); err != nil {
		return templateError{fmt.Errorf("spec.dataVolumeTemplates[%d].spec.%w", i, err)}
	}
	pvc.ObjectMeta = ownedBy(vm, t)
	if image := originOf(t); image != "" {
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, annotationOrigin, image)
	}
	if t.Spec.Preallocation != nil && *t.Spec.Preallocation {
		metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, pod.AnnotationPreallocation, "true")
	}
	if err := r.client.Create(ctx, pvc); err != nil && !apierrors.IsAlreadyExists(err) {
		return templateError{fmt.Errorf("create PVC %s/%s: %w", vm.Namespace, t.Name, err)}
	}
	r.events.Eventf(vm, pvc, corev1.EventTypeNormal, "SuccessfulDataVolumeCreate", "Create",
		"Created PVC %s, since the cluster has no DataVolumes", t.Name)
	return nil
}

// correctOrigin has a PVC of a template that no node has filled yet be a copy of the image that the template names now.
func (r *Reconciler) correctOrigin(
	ctx context.Context, vm *kubevirt.VirtualMachine, t *kubevirt.DataVolumeTemplateSpec, pvc *corev1.PersistentVolumeClaim,
) error {
	image, key := originOf(t), client.ObjectKeyFromObject(pvc)
	differs := func() bool { was := pod.Unfilled(pvc); return was != "" && was != image }
	if image == "" || !differs() {
		return nil
	}
	if err := r.live.Get(ctx, key, pvc); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("read PVC %s: %w", key, err))
	}
	if !differs() || !metav1.IsControlledBy(pvc, vm) || pvc.DeletionTimestamp != nil {
		return nil
	}
	before := pvc.DeepCopy()
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, annotationOrigin, image)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, pvc, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the image of PVC %s: %w", key, err))
	}
	r.events.Eventf(vm, pvc, corev1.EventTypeNormal, "ImageChanged", "Create",
		"The next start makes PVC %s a copy of image %s; restart the VM if its instance waits for another image", t.Name, image)
	return nil
}

// ownedBy returns the metadata of what is created from a template.
func ownedBy(vm *kubevirt.VirtualMachine, t *kubevirt.DataVolumeTemplateSpec) metav1.ObjectMeta {
	made := (&metav1.ObjectMeta{
		Name: t.Name, Namespace: vm.Namespace, Labels: t.Labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
	}).DeepCopy()
	metav1.SetMetaDataLabel(made, kubevirt.CreatedByLabel, string(vm.UID)) // by which KubeVirt's clients find them
	return *made
}

// isTemplateError reports whether a failure is about one of the templates.
func isTemplateError(failure error) bool {
	var t templateError
	return errors.As(failure, &t)
}
