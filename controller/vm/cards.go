package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// reasonCards is KubeVirt's reason for network cards that the running instance cannot get.
const reasonCards = "HotPlugNetworkInterfaceError"

// cardsError says that the instance of a VirtualMachine does not take its network cards.
type cardsError struct{ error }

func (e cardsError) Unwrap() error { return e.error }

// cards gives instances the network cards of their VirtualMachines.
type cards struct{ client client.Client }

// follow gives the running instance the network cards of the template, and takes those away again that the template
// says are absent. [Reconciler.resize] takes away those that the instance was created with. Once the VM has lost a card, neither the instance nor the template has it any more.
func (c *cards) follow(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, staged bool) error {
	if vm.Spec.Template == nil {
		return nil
	}
	var failed error
	if vmi != nil && vmi.DeletionTimestamp == nil && vmi.Status.Phase == kubevirt.Running && !staged {
		failed = c.give(ctx, vm, vmi)
	}
	return errors.Join(failed, c.drop(ctx, vm, vmi))
}

func (c *cards) give(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	next, err := withCards(&vm.Spec.Template.Spec, vmi)
	if err != nil || equality.Semantic.DeepEqual(next, vmi) {
		return err
	}
	patch := client.MergeFromWithOptions(vmi.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(c.client.Patch(ctx, next, patch)); err != nil {
		return cardsError{fmt.Errorf("change the network cards of VMI %s: %w", vmi.Name, err)}
	}
	*vmi = *next
	return nil
}

// withCards returns an instance with the network cards of a template that a running VM can get.
func withCards(template *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) (*kubevirt.VirtualMachineInstance, error) {
	notes, known := pod.CardsOf(vmi)
	if !known {
		return vmi, nil
	}
	next := vmi.DeepCopy()
	notes.Got = maps.Clone(notes.Got)
	for _, name := range pluggable(template, notes) {
		wants, has := pod.CardOf(template, name), pod.CardOf(&next.Spec, name)
		_, got := notes.Got[name]
		switch {
		case has == nil && wants.State == kubevirt.InterfaceStateAbsent:
		case has == nil:
			next.Spec.Domain.Devices.Interfaces = append(next.Spec.Domain.Devices.Interfaces, *wants.DeepCopy())
			next.Spec.Networks = append(next.Spec.Networks, *pod.NetworkOf(template, name).DeepCopy())
			if notes.Got == nil {
				notes.Got = map[string]string{}
			}
			notes.Got[name] = cardDigest(template, name)
		case !got || has.State == kubevirt.InterfaceStateAbsent: // another one's, or on its way out
		default:
			has.State = wants.State
		}
	}
	for name := range notes.Got {
		if has := pod.CardOf(&next.Spec, name); has == nil || has.State == kubevirt.InterfaceStateAbsent && reported(vmi, name) == nil {
			pod.RemoveCards(&next.Spec, name)
			delete(notes.Got, name)
		}
	}
	return next, noteCards(&next.ObjectMeta, notes)
}

// pluggable returns the names of a template's network cards that an instance gets, or loses, while it runs: those that
// it was not created with.
func pluggable(template *kubevirt.VirtualMachineInstanceSpec, notes pod.Cards) []string {
	var all []string
	for _, card := range template.Domain.Devices.Interfaces {
		if !slices.Contains(notes.Start, card.Name) && pod.PluggableCard(template, card.Name) {
			all = append(all, card.Name)
		}
	}
	return all
}

// noteCards notes on an instance which cards of its template it has.
func noteCards(meta *metav1.ObjectMeta, notes pod.Cards) error {
	text, err := json.Marshal(notes)
	if err != nil {
		return fmt.Errorf("encode the network cards of VMI %s: %w", meta.Name, err)
	}
	metav1.SetMetaDataAnnotation(meta, pod.AnnotationCards, string(text))
	return nil
}

// startCards returns the names of the network cards that an instance of a template is created with.
func startCards(template *kubevirt.VirtualMachineInstanceSpec) []string {
	all := []string{}
	for _, card := range template.Domain.Devices.Interfaces {
		if card.State != kubevirt.InterfaceStateAbsent {
			all = append(all, card.Name)
		}
	}
	return all
}

// withoutCards returns a template's spec without the network cards that an instance gets while it runs, and without
// absent ones that it was not created with. Nil is a new instance. The result shares the rest with the spec.
func withoutCards(template kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) kubevirt.VirtualMachineInstanceSpec {
	notes, known := pod.Cards{Start: startCards(&template)}, true
	if vmi != nil {
		notes, known = pod.CardsOf(vmi)
	}
	if !known {
		return template
	}
	names := pluggable(&template, notes)
	for _, name := range pod.AbsentCards(&template) {
		if !slices.Contains(notes.Start, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return template
	}
	template.Networks = slices.Clone(template.Networks)
	template.Domain.Devices.Interfaces = slices.Clone(template.Domain.Devices.Interfaces)
	pod.RemoveCards(&template, names...)
	return template
}

// cardDigest identifies what a template says of a network card, but for its state.
func cardDigest(template *kubevirt.VirtualMachineInstanceSpec, name string) string {
	card := pod.CardOf(template, name).DeepCopy()
	card.State = ""
	text, _ := json.Marshal([]any{card, pod.NetworkOf(template, name)}) // of plain values
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// cardsOutdated reports whether the network cards of a template differ from those that the running instance has, or is
// about to get.
func cardsOutdated(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, staged bool) bool {
	notes, known := pod.CardsOf(vmi)
	if !known || vm.Spec.Template == nil {
		return false
	}
	template := &vm.Spec.Template.Spec
	wanted := pluggable(template, notes)
	for _, name := range wanted {
		was, got := notes.Got[name]
		absent := pod.CardOf(template, name).State == kubevirt.InterfaceStateAbsent
		switch {
		case got && was != cardDigest(template, name):
			return true
		case got && absent && staged:
			return true
		case !got && !absent && staged:
			return true
		}
	}
	for _, name := range notes.Start { // such as the default one, which a template without cards does not name
		if len(template.Domain.Devices.Interfaces) > 0 && pod.CardOf(template, name) == nil {
			return true
		}
	}
	for name := range notes.Got {
		has := pod.CardOf(&vmi.Spec, name)
		if !slices.Contains(wanted, name) && has != nil && has.State != kubevirt.InterfaceStateAbsent {
			return true
		}
	}
	return false
}

// reported returns what an instance reports of a network card; nil for nothing.
func reported(vmi *kubevirt.VirtualMachineInstance, name string) *kubevirt.VirtualMachineInstanceNetworkInterface {
	i := slices.IndexFunc(vmi.Status.Interfaces, func(s kubevirt.VirtualMachineInstanceNetworkInterface) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &vmi.Status.Interfaces[i]
}

// lostCards returns the network cards that the running VM of an instance was created with, and has lost since.
func lostCards(vmi *kubevirt.VirtualMachineInstance) []string {
	notes, _ := pod.CardsOf(vmi)
	return slices.DeleteFunc(notes.Start, func(name string) bool {
		has := pod.CardOf(&vmi.Spec, name)
		return has == nil || has.State != kubevirt.InterfaceStateAbsent || reported(vmi, name) != nil
	})
}

// dropCards removes network cards from an instance that was created with them. It may get others of their names.
func dropCards(vmi *kubevirt.VirtualMachineInstance, names []string) error {
	notes, known := pod.CardsOf(vmi)
	if !known || len(names) == 0 {
		return nil
	}
	pod.RemoveCards(&vmi.Spec, names...)
	notes.Start = slices.DeleteFunc(notes.Start, func(name string) bool { return slices.Contains(names, name) })
	return noteCards(&vmi.ObjectMeta, notes)
}

// drop removes the absent cards that no instance has from the template.
func (c *cards) drop(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	var gone []string
	for _, name := range pod.AbsentCards(&vm.Spec.Template.Spec) {
		if vmi == nil || vmi.IsFinal() || pod.CardOf(&vmi.Spec, name) == nil && reported(vmi, name) == nil {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	before := vm.DeepCopy()
	pod.RemoveCards(&vm.Spec.Template.Spec, gone...)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("remove absent network cards from VM %s/%s: %w", vm.Namespace, vm.Name, err))
	}
	return nil
}
