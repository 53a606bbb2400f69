package vmi

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// withoutNewCards returns the former and the new spec of an instance whose VM runs without the network cards that the
// VM gets by the change, and without absent ones that it loses, and what is wrong with those that it gets. All other
// cards must be as before, in their order.
func withoutNewCards(r *admission.Review, old, now any) (a, b any, problems field.ErrorList) {
	var before, after kubevirt.VirtualMachineInstance
	if fields.Decode(map[string]any{"spec": old, "status": r.Old["status"]}, &before) != nil ||
		fields.Decode(map[string]any{"spec": now}, &after) != nil || before.Status.Phase != kubevirt.Running {
		return old, now, nil
	}
	at := field.NewPath("spec", "domain", "devices", "interfaces")
	var come, gone []string
	for i, card := range after.Spec.Domain.Devices.Interfaces {
		if pod.CardOf(&before.Spec, card.Name) != nil {
			continue
		}
		network := pod.NetworkOf(&after.Spec, card.Name)
		switch err := vmspec.CheckHotplugCard(card); {
		case before.Spec.Domain.Devices.DisableHotplug:
			problems = append(problems, field.Forbidden(at.Index(i), fmt.Sprintf("interface %s: the instance has disableHotplug", card.Name)))
		case network == nil || !vmspec.IsSecondary(*network):
			problems = append(problems, field.Forbidden(at.Index(i), fmt.Sprintf("interface %s: a running VM gets cards on networks of multus alone", card.Name)))
		case err != nil:
			problems = append(problems, field.Forbidden(at.Index(i), fmt.Sprintf("interface %s: %s", card.Name, err)))
		}
		come = append(come, card.Name)
	}
	for _, card := range before.Spec.Domain.Devices.Interfaces {
		if card.State == kubevirt.InterfaceStateAbsent && pod.CardOf(&after.Spec, card.Name) == nil {
			gone = append(gone, card.Name)
		}
	}
	return withoutCards(old, gone), withoutCards(now, come), problems
}

// withoutCards returns a decoded spec without some network cards and their networks. It leaves the spec as it is.
func withoutCards(spec any, names []string) any {
	if len(names) == 0 {
		return spec
	}
	named := func(one any) bool {
		object, _ := one.(map[string]any)
		name, _ := object["name"].(string)
		return slices.Contains(names, name)
	}
	return filtered(filtered(spec, named, "networks"), named, "domain", "devices", "interfaces")
}

// filtered returns a decoded value without some elements of the list that a path leads to, and without a list that
// is empty then.
func filtered(value any, remove func(any) bool, first string, rest ...string) any {
	from, is := value.(map[string]any)
	if !is {
		return value
	}
	to := make(map[string]any, len(from))
	for key, child := range from {
		list, isList := child.([]any)
		switch {
		case key != first:
		case len(rest) > 0:
			child = filtered(child, remove, rest[0], rest[1:]...)
		case isList:
			if list = slices.DeleteFunc(slices.Clone(list), remove); len(list) == 0 {
				continue
			}
			child = list
		}
		to[key] = child
	}
	return to
}
