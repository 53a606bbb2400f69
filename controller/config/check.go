package config

import (
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// amd64 is the architecture of the fields that are older than those of each architecture.
const amd64 = "amd64"

// architecture returns the configuration of an architecture; nil for none.
func (c Config) architecture(arch string) *kubevirt.ArchSpecificConfiguration {
	a := c.Given.ArchitectureConfiguration
	switch {
	case a == nil:
		return nil
	case arch == amd64:
		return a.Amd64
	case arch == vmspec.ARM64:
		return a.Arm64
	}
	return nil
}

// machines returns the patterns of the machines that VMs may have; nil for any.
func (c Config) machines(arch string) []string {
	if a := c.architecture(arch); a != nil && len(a.EmulatedMachines) > 0 {
		return a.EmulatedMachines
	}
	if arch == amd64 {
		return c.Given.EmulatedMachines
	}
	return nil
}

// Check returns the problems of an instance that has what this cluster does not permit; at is the spec's own path.
func (c Config) Check(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	problems := c.Gates().Check(at, spec)
	problems = append(problems, c.checkMachine(at.Child("domain", "machine", "type"), spec)...)
	problems = append(problems, c.checkBridge(at.Child("domain", "devices", "interfaces"), spec)...)
	problems = append(problems, c.checkBindings(at.Child("domain", "devices", "interfaces"), spec)...)
	return append(problems, c.checkDevices(at.Child("domain", "devices"), spec)...)
}

// checkMachine refuses a machine that the author chose, and that no pattern matches.
func (c Config) checkMachine(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	vm, _ := vmspec.Preview(field.NewPath("spec"), spec)
	patterns, m := c.machines(vm.Arch()), spec.Domain.Machine
	if len(patterns) == 0 || m == nil || m.Type == "" {
		return nil
	}
	for _, p := range patterns {
		if matches, err := path.Match(p, m.Type); err == nil && matches {
			return nil
		}
	}
	return field.ErrorList{fields.Invalid(at, m.Type, "is not among emulatedMachines in the configuration of the object KubeVirt")}
}

// checkBridge refuses guests that own the pod's address, if the cluster does not permit that.
func (c Config) checkBridge(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	n := c.Given.NetworkConfiguration
	if n == nil || n.PermitBridgeInterfaceOnPodNetwork == nil || *n.PermitBridgeInterfaceOnPodNetwork {
		return nil
	}
	const refusal = "bridge on the pod network is not enabled: the object KubeVirt has network.permitBridgeInterfaceOnPodNetwork: false; use masquerade"
	var problems field.ErrorList
	for i, card := range spec.Domain.Devices.Interfaces {
		pods := slices.ContainsFunc(spec.Networks, func(n kubevirt.Network) bool { return n.Name == card.Name && vmspec.IsPods(n) })
		if pods && card.Masquerade == nil && card.SRIOV == nil && card.Binding == nil {
			problems = append(problems, fields.Refused(at.Index(i), refusal))
		}
	}
	auto := spec.Domain.Devices.AutoattachPodInterface
	if none := len(spec.Networks)+len(spec.Domain.Devices.Interfaces) == 0; none && (auto == nil || *auto) && c.Interface() == kubevirt.BridgeInterface {
		problems = append(problems, fields.Refused(at, refusal))
	}
	return problems
}

// checkBindings refuses network binding plug-ins that the configuration does not have, or whose sidecars are
// switched off.
func (c Config) checkBindings(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	all := c.Bindings()
	for i, card := range spec.Domain.Devices.Interfaces {
		if card.Binding == nil {
			continue
		}
		at := at.Index(i).Child("binding", "name")
		plugin, registered := all[card.Binding.Name]
		switch {
		case len(all) == 0:
			problems = append(problems, fields.Invalid(at, card.Binding.Name,
				"no network binding plug-in is registered in configuration.network.binding of the object KubeVirt; use bridge or masquerade"))
		case !registered:
			problems = append(problems, fields.Invalid(at, card.Binding.Name,
				"is not registered in configuration.network.binding of the object KubeVirt, which has %s", strings.Join(slices.Sorted(maps.Keys(all)), ", ")))
		case plugin.SidecarImage != "" && !c.Gates().HookSidecars:
			problems = append(problems, fields.Refused(at,
				"the plug-in has a sidecar, and the Sidecar feature gate is not enabled; enable it in the KubeVirt object, or set -hook-sidecars of nodevirt-controller"))
		}
	}
	return problems
}

// checkDevices refuses devices of the node that the configuration does not list, if it lists any.
func (c Config) checkDevices(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	p := c.Given.PermittedHostDevices
	if p == nil {
		return nil
	}
	permitted := map[string]bool{"": true} // a ResourceClaim has the device
	for _, d := range p.PciHostDevices {
		permitted[d.ResourceName] = true
	}
	for _, d := range p.MediatedDevices {
		permitted[d.ResourceName] = true
	}
	for _, d := range p.USB {
		permitted[d.ResourceName] = true
	}
	var problems field.ErrorList
	check := func(list string, i int, name string) {
		if !permitted[name] {
			problems = append(problems, fields.Invalid(at.Child(list).Index(i).Child("deviceName"), name,
				"is not permitted in permittedHostDevices of the object KubeVirt"))
		}
	}
	for i, d := range spec.Domain.Devices.GPUs {
		check("gpus", i, d.DeviceName)
	}
	for i, d := range spec.Domain.Devices.HostDevices {
		check("hostDevices", i, d.DeviceName)
	}
	return problems
}
