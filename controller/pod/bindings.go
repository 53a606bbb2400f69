package pod

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// plugins returns the names of the network binding plug-ins that an instance has, each once.
func plugins(s *kubevirt.VirtualMachineInstanceSpec) []string {
	var all []string
	seen := map[string]bool{}
	for _, card := range s.Domain.Devices.Interfaces {
		if card.Binding == nil || seen[card.Binding.Name] {
			continue
		}
		seen[card.Binding.Name] = true
		all = append(all, card.Binding.Name)
	}
	return all
}

// addBindings says to the node what the instance's network binding plug-ins are.
func addBindings(annotations map[string]string, vmi *kubevirt.VirtualMachineInstance, registered map[string]kubevirt.InterfaceBindingPlugin) error {
	all := map[string]vmspec.NetworkBinding{}
	for _, name := range plugins(&vmi.Spec) {
		plugin, known := registered[name]
		if !known {
			return fmt.Errorf("network binding plug-in %q is not registered in configuration.network.binding of the object KubeVirt; "+
				"register it, or change the instance's interfaces", name)
		}
		one := vmspec.NetworkBinding{DomainAttachmentType: vmspec.Binding(plugin.DomainAttachmentType)}
		if plugin.Migration != nil {
			one.Migration = &vmspec.NetworkBindingMigration{}
		}
		all[name] = one
	}
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("network binding plug-ins: %w", err)
	}
	annotations[vmspec.AnnotationNetworkBindings] = string(text)
	return nil
}

// withPluginSidecars returns the instance with the sidecars of its network binding plug-ins after those that its
// annotation lists, if the cluster has sidecars.
func withPluginSidecars(vmi *kubevirt.VirtualMachineInstance, registered map[string]kubevirt.InterfaceBindingPlugin, on bool) (*kubevirt.VirtualMachineInstance, error) {
	var more []vmspec.HookSidecar
	for _, name := range plugins(&vmi.Spec) {
		if image := registered[name].SidecarImage; image != "" {
			more = append(more, vmspec.HookSidecar{Image: image})
		}
	}
	switch {
	case len(more) == 0:
		return vmi, nil
	case !on:
		return nil, errors.New("a network binding plug-in of the instance has a sidecar, and the Sidecar feature gate is not enabled; " +
			"enable it in the KubeVirt object, or set -hook-sidecars of nodevirt-controller")
	}
	own, err := vmspec.HookSidecars(vmi.Annotations)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(append(own, more...))
	if err != nil {
		return nil, fmt.Errorf("sidecars of network binding plug-ins: %w", err)
	}
	vmi = vmi.DeepCopy()
	if vmi.Annotations == nil {
		vmi.Annotations = map[string]string{}
	}
	vmi.Annotations[vmspec.AnnotationHooks] = string(text)
	return vmi, nil
}

// reservePlugins requests the memory that the registrations of an instance's network binding plug-ins name. A limit
// stays, since the node derives the guest's memory from it, and bounds the request.
func reservePlugins(r *corev1.ResourceRequirements, s *kubevirt.VirtualMachineInstanceSpec, registered map[string]kubevirt.InterfaceBindingPlugin) {
	request, requested := r.Requests[corev1.ResourceMemory]
	if !requested {
		return
	}
	for _, name := range plugins(s) {
		if overhead := registered[name].ComputeResourceOverhead; overhead != nil {
			request.Add(overhead.Requests[corev1.ResourceMemory])
		}
	}
	if limit, limited := r.Limits[corev1.ResourceMemory]; limited && request.Cmp(limit) > 0 {
		request = limit
	}
	r.Requests[corev1.ResourceMemory] = request
}
