package vm

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/controller/pod"
)

func rules() admission.Rules {
	return admission.Rules{
		Finalizer:   kubevirt.VirtualMachineControllerFinalizer,
		Check:       check,
		CheckUpdate: checkUpdate,
		CheckTypes:  checkTypes,
		Infer:       infer,
		Default: func(r *admission.Review, spec admission.Tree) {
			r.SetTemplateDefaults(spec)
			setUUID(r, spec)
		},
		Presets: func(r *admission.Review) (admission.Subject, bool) {
			return r.TemplateSubject(map[string]string{kubevirt.VirtualMachineLabel: pod.LabelOf(r.Meta.Name)})
		},
	}
}

func check(r *admission.Review) field.ErrorList {
	spec := field.NewPath("spec")
	tree, problems := r.CheckTemplated(pod.AnnotationSuspend, memory.AnnotationClass, memory.AnnotationSize)
	problems = append(problems, checkSuspend(r.Meta.Annotations)...)
	if tree == nil {
		return problems
	}
	problems = append(problems, CheckRunning(spec, tree)...)
	vm, p := CheckManifest(spec, tree)
	problems = append(problems, p...)
	if vm == nil {
		return problems
	}
	problems = append(problems, CheckNamespaces(spec, vm, r.Meta.Namespace)...)
	return append(problems, r.CheckTemplate(vm.Template)...)
}

// CheckNamespaces refuses templates of DataVolumes of another namespace than the VM's.
func CheckNamespaces(spec *field.Path, vm *kubevirt.VirtualMachineSpec, namespace string) field.ErrorList {
	var problems field.ErrorList
	for i, t := range vm.DataVolumeTemplates {
		if t.Namespace != "" && t.Namespace != namespace {
			problems = append(problems, field.Forbidden(spec.Child("dataVolumeTemplates").Index(i).Child("metadata", "namespace"),
				"is not the VM's; leave it out"))
		}
	}
	return problems
}

// CheckRunning requires one of the two fields that say when an instance exists.
func CheckRunning(spec *field.Path, tree any) field.ErrorList {
	vm, ok := tree.(map[string]any)
	if !ok {
		return nil // the field table reports it
	}
	running, strategy := vm["running"] != nil, vm["runStrategy"] != nil && vm["runStrategy"] != ""
	switch {
	case running && strategy:
		return field.ErrorList{field.Forbidden(spec.Child("running"),
			"runStrategy is given too; use runStrategy alone")}
	case !running && !strategy:
		return field.ErrorList{field.Required(spec.Child("runStrategy"),
			"set when the VM should run: Always, RerunOnFailure, Manual, Halted or Once")}
	}
	return nil
}

// checkUpdate returns what is wrong with the change of a sound VirtualMachine.
func checkUpdate(r *admission.Review) field.ErrorList {
	return append(checkRevisions(r), checkInProgress(r)...)
}

// checkInProgress refuses what would change a snapshot that is being taken, or start a guest
// on disks that are being restored, as KubeVirt does.
func checkInProgress(r *admission.Review) field.ErrorList {
	snapshot, _, _ := unstructured.NestedString(r.Object, "status", "snapshotInProgress")
	restore, _, _ := unstructured.NestedString(r.Object, "status", "restoreInProgress")
	changed := func(path ...string) bool {
		old, _, _ := unstructured.NestedFieldNoCopy(r.Old, path...)
		now, _, _ := unstructured.NestedFieldNoCopy(r.Object, path...)
		return !reflect.DeepEqual(old, now)
	}
	var problems field.ErrorList
	refuse := func(at *field.Path, format, operation string) {
		problems = append(problems, field.Forbidden(at, fmt.Sprintf(format, operation)))
	}
	at := field.NewPath("spec")
	if volumes := []string{"spec", "template", "spec", "volumes"}; snapshot != "" && changed(volumes...) {
		refuse(at.Child(volumes[1], volumes[2:]...), "Cannot update VM disks or volumes until snapshot %q completes", snapshot)
	}
	for _, name := range []string{"running", "runStrategy"} {
		if !changed("spec", name) {
			continue
		}
		if snapshot != "" {
			refuse(at.Child(name), "Cannot update VM running state until snapshot %q completes", snapshot)
		}
		now, _, _ := unstructured.NestedFieldNoCopy(r.Object, "spec", name)
		if restore != "" && now != nil && now != false && now != string(kubevirt.RunStrategyHalted) {
			refuse(at.Child(name), "Cannot update VM runStrategy until restore %q completes", restore)
		}
	}
	return problems
}

// checkRevisions refuses to name another instance type or preference together with
// the revision of the former one, as KubeVirt does: that would change nothing.
func checkRevisions(r *admission.Review) field.ErrorList {
	var problems field.ErrorList
	for _, of := range []string{"instancetype", "preference"} {
		old, _, _ := unstructured.NestedStringMap(r.Old, "spec", of)
		now, _, _ := unstructured.NestedStringMap(r.Object, "spec", of)
		if now["revisionName"] != "" && old["revisionName"] == now["revisionName"] && old["name"] != now["name"] {
			problems = append(problems, field.Forbidden(field.NewPath("spec", of, "revisionName"),
				"is of "+old["name"]+"; leave it out, or name one of "+now["name"]))
		}
	}
	return problems
}

// checkTypes refuses a VirtualMachine that contradicts its instance type or its preference. Those need not exist yet,
// and whatever else keeps them from being read, the VM's conditions report when it starts.
func checkTypes(ctx context.Context, live client.Reader, r *admission.Review) (field.ErrorList, error) {
	vm := new(kubevirt.VirtualMachine)
	if err := r.Decode(vm); err != nil {
		return nil, err
	}
	if vm.Spec.Template == nil || vm.Spec.Instancetype == nil && vm.Spec.Preference == nil {
		return nil, nil
	}
	types, err := instancetype.Find(ctx, live, vm)
	if err != nil {
		return nil, nil //nolint:nilerr // as the comment above says
	}
	return types.Apply(field.NewPath("spec", "template"), vm.Spec.Template.DeepCopy()), nil
}

// infer puts the names of types into a VirtualMachine that the labels of its volumes' sources say.
func infer(ctx context.Context, live client.Reader, r *admission.Review) (field.ErrorList, error) {
	vm := new(kubevirt.VirtualMachine)
	if err := r.Decode(vm); err != nil || vm.Spec.Template == nil {
		return nil, nil //nolint:nilerr // check reports what is wrong with it
	}
	vm.Namespace = r.Meta.Namespace
	inferred, problems, err := instancetype.Infer(ctx, live, field.NewPath("spec"), vm)
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	spec := admission.Child(r.Object, "spec")
	for _, i := range inferred {
		if i.Name == "" {
			delete(spec, i.Matcher)
			continue
		}
		spec[i.Matcher] = admission.Tree{"name": i.Name}
		if i.Kind != "" {
			admission.Child(spec, i.Matcher)["kind"] = i.Kind
		}
		if i.Ignore && i.Matcher == "instancetype" { // as KubeVirt does: the memory is for a VM without one
			unstructured.RemoveNestedField(spec, "template", "spec", "domain", "memory")
		}
	}
	return nil, nil
}
