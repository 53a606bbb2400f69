package export

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
)

// source is what an export serves.
type source struct {
	volumes []volume
	// vm is the VM's name; "" for none. Its spec is that of the manifests; nil for none.
	vm   string
	spec *kubevirt.VirtualMachine
	// backup is the backup that the export serves; nil for none.
	backup *backup
	// why says why the source is not available now; nil if it is.
	why *reason
	// empty says that the source has no volumes.
	empty bool
	// conditions are those of the source's kind.
	conditions []api.Condition
}

// volume is a PVC of an export.
type volume struct {
	pvc *corev1.PersistentVolumeClaim
	// source is the name of the PVC that the VM has: in an export of a snapshot, pvc is a copy.
	source string
	has    content
}

// content is what a PVC of an export has.
type content int

const (
	files content = iota
	disk
	persistentState // UEFI variables and a TPM, which no manifest names
)

// contentOf returns what a PVC has that a VM uses.
func contentOf(pvc *corev1.PersistentVolumeClaim, use pod.PVC) content {
	switch {
	case pod.IsSavedState(use.Volume):
		return persistentState
	case pod.IsBlock(pvc) || !use.Filesystem:
		return disk
	}
	return files
}

// reason is a condition's reason, in KubeVirt's words.
type reason struct{ reason, message string }

func because(word, format string, args ...any) *reason {
	return &reason{word, fmt.Sprintf(format, args...)}
}

// sources finds what exports serve.
type sources struct {
	client      client.Client
	live        client.Reader
	dataVolumes dataVolumes
	snapshots   snapshots
	pods        pods
}

// find returns what an export's source has. It makes the PVCs of a snapshot.
func (f *sources) find(ctx context.Context, w *work) (*source, error) {
	switch w.e.Spec.Source.Kind {
	case kindPVC:
		return f.ofPVC(ctx, w)
	case kindVM:
		return f.ofVM(ctx, w)
	case kindSnapshot:
		return f.ofSnapshot(ctx, w)
	case kindBackup:
		return f.ofBackup(ctx, w)
	}
	return nil, fmt.Errorf("source of kind %q cannot be exported", w.e.Spec.Source.Kind) // admission refuses it
}

func (f *sources) ofPVC(ctx context.Context, w *work) (*source, error) {
	pvc, err := f.read(ctx, w, w.e.Spec.Source.Name)
	if err != nil {
		return nil, err
	}
	s := new(source)
	if pvc == nil {
		s.why = because(reasonInitializing, "")
		s.conditions = []api.Condition{{
			Type: api.ConditionPVC, Status: corev1.ConditionFalse, Reason: reasonPVCNotFound,
			Message: fmt.Sprintf("PersistentVolumeClaim %s not found", w.key(w.e.Spec.Source.Name)),
		}}
		return s, nil
	}
	has := files
	switch is, err := f.isDisk(ctx, pvc); {
	case err != nil:
		return nil, err
	case is:
		has = disk
	}
	s.volumes = []volume{{pvc: pvc, source: pvc.Name, has: has}}
	s.conditions = []api.Condition{bound(pvc)}
	filled, err := f.filled(ctx, pvc)
	switch {
	case err != nil:
		return nil, err
	case !filled:
		s.why = because(reasonPVCPending, "PersistentVolumeClaim %s is not populated", w.key(pvc.Name))
		return s, nil
	}
	s.why, err = f.inUse(ctx, w, s.volumes)
	return s, err
}

// ofVM exports the PVCs of a VM that does not run.
func (f *sources) ofVM(ctx context.Context, w *work) (*source, error) {
	vm, key := new(kubevirt.VirtualMachine), w.key(w.e.Spec.Source.Name)
	s := &source{vm: key.Name}
	err := f.client.Get(ctx, key, vm)
	if apierrors.IsNotFound(err) {
		s.why = because(reasonNoVM, "Virtual Machine %s not found", key)
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read VM %s: %w", key, err)
	}
	s.spec = vm
	uses, err := state.PVCs(ctx, f.live, vm)
	if err != nil {
		return nil, err
	}
	missing := ""
	for _, use := range once(uses) {
		pvc, err := f.read(ctx, w, use.Name)
		if err != nil {
			return nil, err
		}
		filled := false
		if pvc != nil {
			s.volumes = append(s.volumes, volume{pvc: pvc, source: pvc.Name, has: contentOf(pvc, use)})
			if filled, err = f.filled(ctx, pvc); err != nil {
				return nil, err
			}
		}
		if !filled {
			missing = use.Name
		}
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	err = f.client.Get(ctx, key, vmi)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read VMI %s: %w", key, err)
	case missing != "":
		s.why = because(reasonUnfilled, "Not all volumes in the Virtual Machine %s are populated: PersistentVolumeClaim %s", key, missing)
	case len(s.volumes) == 0:
		s.empty, s.why = true, because(reasonNoVolumes, "Virtual Machine %s has no volumes", key)
	case err == nil && !vmi.IsFinal():
		s.why = because(reasonInUse, "Virtual Machine %s is running", key)
	default:
		s.why, err = f.inUse(ctx, w, s.volumes)
		return s, err
	}
	return s, nil
}

// disksOf returns the PVCs of a template with contents of the VM's own, without its persistent state.
func disksOf(template *kubevirt.VirtualMachineInstanceTemplateSpec) []pod.PVC {
	if template == nil {
		return nil
	}
	return slices.DeleteFunc(pod.PVCs(&template.Spec), func(use pod.PVC) bool { return use.Ephemeral })
}

// once returns each PVC once, as its first volume uses it.
func once(uses []pod.PVC) (all []pod.PVC) {
	for _, use := range uses {
		if !slices.ContainsFunc(all, func(other pod.PVC) bool { return other.Name == use.Name }) {
			all = append(all, use)
		}
	}
	return all
}

// read returns a PVC; nil if it does not exist, or is being deleted. The cache has no annotations.
func (f *sources) read(ctx context.Context, w *work, name string) (*corev1.PersistentVolumeClaim, error) {
	pvc := new(corev1.PersistentVolumeClaim)
	err := f.live.Get(ctx, w.key(name), pvc)
	if apierrors.IsNotFound(err) || err == nil && pvc.DeletionTimestamp != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PVC %s: %w", w.key(name), err)
	}
	return pvc, nil
}

// bound returns the condition of a PVC. One that waits for its first consumer gets that: the
// export's pod.
func bound(pvc *corev1.PersistentVolumeClaim) api.Condition {
	c := api.Condition{Type: api.ConditionPVC, Status: corev1.ConditionFalse, Reason: reasonUnknown}
	switch pvc.Status.Phase {
	case corev1.ClaimBound:
		c.Status, c.Reason = corev1.ConditionTrue, reasonPVCBound
	case corev1.ClaimPending, "":
		c.Reason = reasonPVCPending
	default:
		c.Message = fmt.Sprintf("PersistentVolumeClaim %s/%s is in phase %s", pvc.Namespace, pvc.Name, pvc.Status.Phase)
	}
	return c
}

// filled reports whether the content of a PVC is complete.
func (f *sources) filled(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	if pod.Unfilled(pvc) != "" || pod.FillsByCDI(pvc) || pvc.Status.Phase == corev1.ClaimLost {
		return false, nil
	}
	if owner := metav1.GetControllerOf(pvc); owner == nil || owner.Kind != datavolume.Kind {
		return true, nil
	}
	state, err := f.dataVolumes.Get(ctx, pvc.Namespace, pvc.Name)
	return err == nil && (!state.Found || state.Usable()), err
}

// contentType is CDI's annotation of a PVC: kubevirt, or empty, for a guest's disk.
const contentType = "cdi.kubevirt.io/storage.contentType"

// isDisk reports whether a PVC has a guest's disk: it is a block device, CDI or a node has filled
// it as a disk, or a VM uses it as one.
func (f *sources) isDisk(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	kind, given := pvc.Annotations[contentType]
	switch {
	case pod.IsBlock(pvc) || pvc.Annotations[pod.AnnotationFilled] != "" || pvc.Annotations[pod.AnnotationOrigin] != "":
		return true, nil
	case given:
		return kind == "" || kind == "kubevirt", nil
	}
	using := []client.ListOption{client.InNamespace(pvc.Namespace), client.MatchingFields{index.PVC: pvc.Name}}
	var vms kubevirt.VirtualMachineList
	if err := f.client.List(ctx, &vms, using...); err != nil {
		return false, fmt.Errorf("list VMs with PVC %s: %w", pvc.Name, err)
	}
	var vmis kubevirt.VirtualMachineInstanceList
	if err := f.client.List(ctx, &vmis, using...); err != nil {
		return false, fmt.Errorf("list VMIs with PVC %s: %w", pvc.Name, err)
	}
	var uses []pod.PVC
	for i := range vms.Items {
		uses = append(uses, disksOf(vms.Items[i].Spec.Template)...)
	}
	for i := range vmis.Items {
		uses = append(uses, pod.PVCs(&vmis.Items[i].Spec)...)
	}
	return slices.ContainsFunc(uses, func(use pod.PVC) bool { return use.Name == pvc.Name && !use.Filesystem }), nil
}

// inUse returns which pod has a PVC that it may write; nil for none. Other exports only read.
func (f *sources) inUse(ctx context.Context, w *work, volumes []volume) (*reason, error) {
	var why *reason
	err := pages.Each(ctx, f.live, w.e.Namespace, func() *corev1.PodList { return new(corev1.PodList) }, func(page *corev1.PodList) (bool, error) {
		for i := range page.Items {
			if claim := usedBy(&page.Items[i], volumes); claim != "" {
				why = because(reasonInUse, "PersistentVolumeClaim %s is in use by pod %s", w.key(claim), page.Items[i].Name)
				return true, nil
			}
		}
		return false, nil
	}, pages.Unfinished())
	if errors.Is(err, pages.ErrTooMany) {
		return because(reasonInUse, "A pod may use the export's PersistentVolumeClaims (%v)", err), nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", w.e.Namespace, err)
	}
	return why, nil
}

// usedBy returns which of some PVCs a pod has that it may write; "" for none.
func usedBy(p *corev1.Pod, volumes []volume) string {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || Serves(p) {
		return ""
	}
	for _, v := range p.Spec.Volumes {
		c := v.PersistentVolumeClaim
		if c != nil && slices.ContainsFunc(volumes, func(one volume) bool { return one.pvc.Name == c.ClaimName }) {
			return c.ClaimName
		}
	}
	return ""
}
