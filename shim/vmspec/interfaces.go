package vmspec

import (
	"net"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// interfaces reads a VMI's network cards. A VMI that names none has one on the
// pod's network, unless it says autoattachPodInterface: false. Every interface
// has the network of its name and every network an interface; without a binding
// it is a bridge.
func interfaces(
	root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec,
) ([]Interface, field.ErrorList) {
	devices := vmi.Domain.Devices
	if len(devices.Interfaces)+len(vmi.Networks) == 0 {
		if auto := devices.AutoattachPodInterface; auto != nil && !*auto {
			return nil, nil
		}
		return []Interface{{Name: defaultInterface, Model: defaultModel}}, nil
	}
	names := map[string]bool{}
	problems := readNetworks(root.Child("networks"), vmi.Networks, names)
	var result []Interface
	for i, given := range devices.Interfaces {
		at := root.Child("domain", "devices", "interfaces").Index(i)
		result = append(result, readInterface(given))
		switch {
		case given.Name == "":
			problems = append(problems, field.Required(at.Child("name"), ""))
		case !names[given.Name]:
			problems = append(problems,
				invalid(at.Child("name"), given.Name, "no network has this name"))
		}
		delete(names, given.Name)
	}
	for i, network := range vmi.Networks {
		if names[network.Name] {
			problems = append(problems, refused(root.Child("networks").Index(i),
				"no interface has the name %q; add one to spec.domain.devices.interfaces", network.Name))
		}
	}
	return result, problems
}

func readNetworks(
	at *field.Path, networks []kubevirt.Network, names map[string]bool,
) field.ErrorList {
	var problems field.ErrorList
	for i, n := range networks {
		switch {
		case n.Name == "":
			problems = append(problems, field.Required(at.Index(i).Child("name"), ""))
			continue
		case n.Pod == nil:
			problems = append(problems, field.Required(at.Index(i).Child("pod"), ""))
		}
		names[n.Name] = true
	}
	return problems
}

func readInterface(given kubevirt.Interface) Interface {
	result := Interface{Name: given.Name, Model: given.Model}
	if result.Model == "" {
		result.Model = defaultModel
	}
	// Dashes and dots are fine with KubeVirt, libvirt wants colons; the table has checked it.
	if address, err := net.ParseMAC(given.MacAddress); err == nil {
		result.MAC = address.String()
	}
	return result
}
