package vmspec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// HotplugCard returns the network card that a running VM gets: an interface of KubeVirt's, as JSON, on a
// device of another pod; empty is the one that [PluginInterface] names. Queues is the number of parallel queues of
// cards that can have several; 0 means one.
func HotplugCard(text []byte, device string, queues uint32) (Interface, error) {
	var name struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(text, &name); err != nil {
		return Interface{}, fmt.Errorf("the interface is not JSON as expected: %s", excerpt(err.Error()))
	}
	if name.Name == "" {
		return Interface{}, errors.New("there is no interface with a name")
	}
	if device == podDevice {
		return Interface{}, fmt.Errorf("%s is the pod network's: a card that is added while the VM runs is on a secondary network", device)
	}
	whole, err := json.Marshal(map[string]any{
		"domain": map[string]any{"devices": map[string]any{"interfaces": []any{json.RawMessage(text)}}},
		"networks": []any{map[string]any{
			"name": name.Name, "multus": map[string]any{"networkName": "a"}, // which only the cluster knows
		}},
	})
	if err != nil {
		return Interface{}, err
	}
	spec, problems := DecodeVMI(whole)
	if len(problems) > 0 {
		return Interface{}, hotplugError(problems)
	}
	at := field.NewPath("spec", "domain", "devices", "interfaces").Index(0)
	given := spec.Domain.Devices.Interfaces[0]
	if problems := checkHotplugCard(at, given); len(problems) > 0 {
		return Interface{}, hotplugError(problems)
	}
	if given.Model == "" {
		given.Model = defaultModel
	}
	one, problems := readInterface(at, given, network{device: cmp.Or(device, PluginInterface(given.Name))})
	if len(problems) > 0 {
		return Interface{}, hotplugError(problems)
	}
	if one.Model == defaultModel {
		one.Queues = min(queues, maxQueues)
	}
	return one, nil
}

// CheckHotplugCard returns why no running VM can get a network card; nil if one can.
func CheckHotplugCard(i kubevirt.Interface) error {
	problems := checkHotplugCard(field.NewPath(""), i)
	if len(problems) == 0 {
		return nil
	}
	return errors.New(problems[0].Detail)
}

// checkHotplugCard refuses what a card can have only from its VM's start.
func checkHotplugCard(at *field.Path, i kubevirt.Interface) field.ErrorList {
	var problems field.ErrorList
	add := func(is bool, child, why string) {
		if is {
			problems = append(problems, refused(at.Child(child), "%s", why))
		}
	}
	const bridge = "a card that is added while the VM runs has the binding bridge"
	add(i.Masquerade != nil, "masquerade", bridge)
	add(i.SRIOV != nil, "sriov", bridge)
	add(i.Binding != nil, "binding", bridge)
	add(i.BootOrder != nil, "bootOrder", "goes with a card that the VM starts with")
	add(i.Tag != "", "tag", "goes with a card that the VM starts with")
	add(i.Model == transitional, "model", "goes with a card that the VM starts with; use virtio")
	add(i.State == kubevirt.InterfaceStateAbsent, "state", "an absent card can't be added")
	return problems
}
