package restore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/snapshot"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

// targets writes restored VMs.
type targets struct {
	client    client.Client
	revisions client.Client
}

// writeVM replaces the target's spec by the snapshot's, or creates the target, halted.
func (t *targets) writeVM(ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent) error {
	source := content.Spec.Source.VirtualMachine
	spec, err := t.spec(ctx, w, source)
	if err != nil {
		return err
	}
	if w.vm == nil {
		return t.createVM(ctx, w, content, spec)
	}
	before := w.vm.DeepCopy()
	spec.Running, spec.RunStrategy = before.Spec.Running, before.Spec.RunStrategy
	w.vm.Spec = *spec
	setResume(w.vm, content)
	metav1.SetMetaDataAnnotation(&w.vm.ObjectMeta, annotationLast, mark(w.rs))
	if err := patch(ctx, t.client, before, w.vm); err != nil {
		return fmt.Errorf("restore VM %s: %w", w.vm.Name, err)
	}
	return nil
}

func (t *targets) createVM(ctx context.Context, w *work, content *api.VirtualMachineSnapshotContent, spec *kubevirt.VirtualMachineSpec) error {
	source := content.Spec.Source.VirtualMachine
	made := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.rs.Namespace, Name: w.rs.Spec.Target.Name, Labels: maps.Clone(source.Labels), Annotations: maps.Clone(source.Annotations),
		},
		Spec: *spec,
	}
	halted := kubevirt.RunStrategyHalted
	made.Spec.Running, made.Spec.RunStrategy = nil, &halted
	if made.Name == source.Name { // the guest finds its machine as it was
		if made.Spec.Template.Spec.Domain.Firmware == nil {
			made.Spec.Template.Spec.Domain.Firmware = new(kubevirt.Firmware)
		}
		if f := made.Spec.Template.Spec.Domain.Firmware; f.UUID == "" && source.UID != "" {
			f.UUID = vm.SystemUUID(source.UID)
		}
	}
	made, err := Patched(made, w.rs.Spec.Patches)
	if err != nil {
		return err
	}
	setResume(made, content)
	metav1.SetMetaDataAnnotation(&made.ObjectMeta, annotationLast, mark(w.rs))
	if err := t.client.Create(ctx, made); err != nil {
		return fmt.Errorf("create VM %s: %w", made.Name, err)
	}
	w.vm = made
	return nil
}

// setResume has the VM's next start go on from the memory in a snapshot, or boot if it has none.
func setResume(vm *kubevirt.VirtualMachine, content *api.VirtualMachineSnapshotContent) {
	delete(vm.Annotations, pod.AnnotationSuspend)
	if claim := snapshot.MemoryPVC(content); claim != "" {
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, pod.AnnotationResume, claim)
		return
	}
	delete(vm.Annotations, pod.AnnotationResume)
}

// Patched returns a VM with the patches of the restore that creates it.
func Patched(of *kubevirt.VirtualMachine, patches []string) (*kubevirt.VirtualMachine, error) {
	if len(patches) == 0 {
		return of, nil
	}
	patch, err := decodePatches(patches)
	if err != nil {
		return nil, fmt.Errorf("spec.patches: %w", err)
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("encode VM %s: %w", of.Name, err)
	}
	for n, one := range patch {
		if text, err = apply(one, text); err != nil {
			return nil, fmt.Errorf("spec.patches: %w", err)
		}
		if len(text) > bounds.Object { // each copy could double it
			return nil, fmt.Errorf("spec.patches[%d] makes the VM larger than %d KiB: copy less", n, bounds.Object>>10)
		}
		if err := decode.Check(text); err != nil {
			return nil, fmt.Errorf("spec.patches[%d] makes the VM too large: %w: copy less", n, err)
		}
	}
	changed := new(kubevirt.VirtualMachine)
	if err := decode.JSON(text, changed); err != nil {
		return nil, fmt.Errorf("spec.patches: the result is no VirtualMachine: %w", err)
	}
	if changed.Name != of.Name || changed.Namespace != of.Namespace {
		return nil, fmt.Errorf("the patches rename the VM to %.253q: name it in spec.target", changed.Name)
	}
	return changed, nil
}

// spec returns the snapshot's spec with the restored disks and revisions.
func (t *targets) spec(ctx context.Context, w *work, source *api.VirtualMachine) (*kubevirt.VirtualMachineSpec, error) {
	spec := source.Spec.DeepCopy()
	spec.DataVolumeTemplates = restoredTemplates(source, w.rs.Status.Restores)
	volumes := slices.DeleteFunc(spec.Template.Spec.Volumes, func(v kubevirt.Volume) bool { return v.MemoryDump != nil })
	spec.Template.Spec.Volumes = volumes
	for i := range volumes {
		v := &volumes[i]
		at := slices.IndexFunc(w.rs.Status.Restores, func(one api.VolumeRestore) bool { return one.VolumeName == v.Name })
		if at < 0 {
			continue
		}
		one := w.rs.Status.Restores[at]
		switch {
		case v.PersistentVolumeClaim != nil:
			v.PersistentVolumeClaim.ClaimName = one.PersistentVolumeClaimName
		case v.DataVolume != nil && one.DataVolumeName != nil:
			v.DataVolume.Name = *one.DataVolumeName
		default:
			v.VolumeSource = kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: one.PersistentVolumeClaimName},
			}}
		}
	}
	if err := t.revise(ctx, w, spec); err != nil {
		return nil, err
	}
	return spec, nil
}

// revise names the target's revisions in a spec that has the snapshot's.
func (t *targets) revise(ctx context.Context, w *work, spec *kubevirt.VirtualMachineSpec) error {
	var has kubevirt.VirtualMachineStatus
	if w.vm != nil {
		has = w.vm.Status
	}
	type revised struct {
		what string
		name *string
		has  *kubevirt.InstancetypeStatusRef
	}
	var all []revised
	if m := spec.Instancetype; m != nil {
		all = append(all, revised{"instancetype", &m.RevisionName, has.InstancetypeRef})
	}
	if m := spec.Preference; m != nil {
		all = append(all, revised{"preference", &m.RevisionName, has.PreferenceRef})
	}
	for _, m := range all {
		if *m.name == "" {
			continue
		}
		name, err := t.revision(ctx, w, m.what, *m.name, m.has)
		if err != nil {
			return err
		}
		*m.name = name
	}
	return nil
}

// restoredTemplates returns a VM's templates with the names of the restored DataVolumes. A VM
// fills no PVC that exists.
func restoredTemplates(source *api.VirtualMachine, restores []api.VolumeRestore) []kubevirt.DataVolumeTemplateSpec {
	all := source.Spec.DeepCopy().DataVolumeTemplates
	for _, one := range restores {
		if i := templateOf(source.Spec.DataVolumeTemplates, dataVolumeOf(source, one.VolumeName)); i >= 0 && one.DataVolumeName != nil {
			all[i].Name = *one.DataVolumeName
		}
	}
	return all
}

// revision returns the name of the target's revision with the content of the snapshot's. It copies this one, unless
// the target has it already.
func (t *targets) revision(ctx context.Context, w *work, what, name string, has *kubevirt.InstancetypeStatusRef) (string, error) {
	of, err := t.readRevision(ctx, w, name)
	if err != nil {
		return "", err
	}
	if w.vm != nil && metav1.IsControlledBy(of, w.vm) {
		return name, nil
	}
	if has != nil && has.ControllerRevisionRef != nil {
		own, err := t.readRevision(ctx, w, has.ControllerRevisionRef.Name)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		if err == nil && metav1.IsControlledBy(own, w.vm) && bytes.Equal(own.Data.Raw, of.Data.Raw) {
			return own.Name, nil
		}
	}
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: revisionName(w.rs, what), Labels: maps.Clone(of.Labels),
			// Until the target owns it.
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.rs, api.SchemeGroupVersion.WithKind("VirtualMachineRestore"))},
		},
		Data: of.Data, Revision: of.Revision,
	}
	if err := t.revisions.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
	}
	return made.Name, nil
}

func (t *targets) readRevision(ctx context.Context, w *work, name string) (*appsv1.ControllerRevision, error) {
	of := new(appsv1.ControllerRevision)
	key := client.ObjectKey{Namespace: w.rs.Namespace, Name: name}
	if err := t.revisions.Get(ctx, key, of); err != nil {
		return nil, fmt.Errorf("read ControllerRevision %s: %w", key, err)
	}
	return of, nil
}

func revisionName(rs *api.VirtualMachineRestore, what string) string {
	return "restore-" + string(rs.UID) + "-" + what
}

// apply applies one operation. As with KubeVirt, replace also sets a field that an object does not have.
func apply(one jsonpatch.Operation, text []byte) ([]byte, error) {
	changed, err := jsonpatch.Patch{one}.Apply(text)
	if one.Kind() != "replace" || !errors.Is(err, jsonpatch.ErrMissing) {
		return changed, err
	}
	at, _ := one.Path() // it has been applied
	if _, notIndex := strconv.Atoi(path.Base(at)); notIndex == nil {
		return nil, err // of a list
	}
	set := maps.Clone(one)
	kind := json.RawMessage(`"add"`)
	set["op"] = &kind
	return jsonpatch.Patch{set}.Apply(text)
}
