package vm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/instancetype"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// instance returns a new instance of a VirtualMachine. T is the template with what
// the instance type and the preference add.
func instance(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec,
) (*kubevirt.VirtualMachineInstance, error) {
	whole, err := digest(vm, nil)
	if err != nil {
		return nil, err
	}
	fixed, err := fixedDigest(vm, t, nil)
	if err != nil {
		return nil, err
	}
	vmi := &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name:            vm.Name,
			Namespace:       vm.Namespace,
			Labels:          map[string]string{kubevirt.VirtualMachineLabel: pod.LabelOf(vm.Name)},
			Annotations:     maps.Clone(t.ObjectMeta.Annotations),
			Finalizers:      []string{kubevirt.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
		},
		Spec: withoutCards(without(&t.Spec, pod.Dumps(&t.Spec)), nil),
	}
	maps.Copy(vmi.Labels, t.ObjectMeta.Labels)
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[kubevirt.VirtualMachineGenerationAnnotation] = strconv.FormatInt(vm.Generation, 10)
	vmi.Annotations[pod.AnnotationTemplate], vmi.Annotations[pod.AnnotationFixed] = whole, fixed
	setSkip(vm, vmi)
	delete(vmi.Annotations, pod.AnnotationResume) // each start of the template would go on from it
	if from := vm.Annotations[pod.AnnotationResume]; from != "" {
		vmi.Annotations[pod.AnnotationResume] = from
	}
	instancetype.SetAnnotations(vmi.Annotations, vm)
	setHotplugged(&vmi.ObjectMeta, pod.Hotplugged(&vmi.Spec))
	if err := noteCards(&vmi.ObjectMeta, pod.Cards{Start: startCards(&vmi.Spec)}); err != nil {
		return nil, err
	}
	if startsPaused(vm) {
		paused := kubevirt.StartStrategyPaused
		vmi.Spec.StartStrategy = &paused
	}
	if vmi.Spec.Domain.Firmware == nil {
		vmi.Spec.Domain.Firmware = new(kubevirt.Firmware)
	}
	if vmi.Spec.Domain.Firmware.UUID == "" {
		vmi.Spec.Domain.Firmware.UUID = SystemUUID(vm.UID)
	}
	return vmi, nil
}

// digest identifies the template's spec and the types that an instance was created
// from. Labels and annotations do not change the VM. Vmi is the instance that the template is compared with; nil is
// a new one.
func digest(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) (string, error) {
	template := &vm.Spec.Template.Spec
	others := append(pod.Hotplugged(template), pod.Dumps(template)...) // which change while it runs
	if vmi != nil {
		others = slices.Concat(others, pod.Images(template, vmi), pod.Media(template, vmi))
	}
	spec := beforeMoves(without(template, others), vmi, nil)
	spec = withoutCards(spec, vmi)
	dropUUID(vm, &spec) // which an instance has in any case
	text, err := json.Marshal(&spec)
	if err == nil && (vm.Spec.Instancetype != nil || vm.Spec.Preference != nil) {
		var types []byte
		types, err = json.Marshal([]any{vm.Spec.Instancetype, vm.Spec.Preference})
		text = append(text, types...)
	}
	if err != nil {
		return "", fmt.Errorf("spec.template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// without returns a spec without some volumes. The result shares the rest with the spec: read it only.
func without(spec *kubevirt.VirtualMachineInstanceSpec, volumes []string) kubevirt.VirtualMachineInstanceSpec {
	if len(volumes) == 0 {
		return *spec
	}
	fewer := spec.DeepCopy()
	pod.Remove(fewer, volumes...)
	return *fewer
}

// changed reports whether the VirtualMachine differs from what the instance was created from, or
// has got since.
func changed(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) bool {
	made := vmi.Annotations[pod.AnnotationTemplate]
	if vm.Spec.Template == nil || made == "" {
		return false // an adopted one
	}
	now, err := digest(vm, vmi)
	return err == nil && now != made
}

// outdated reports whether the VirtualMachine's template has changed since the
// instance was created, beyond what the running instance has or can get. T is as of [grown].
func outdated(
	vm *kubevirt.VirtualMachine, t *kubevirt.VirtualMachineInstanceTemplateSpec, vmi *kubevirt.VirtualMachineInstance,
) bool {
	if !changed(vm, vmi) {
		return false
	}
	_, live := grown(vm, t, vmi)
	return !live
}
