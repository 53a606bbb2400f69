package pod

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AnnotationNetworks asks Multus for further interfaces of the pod.
const AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"

// annotationDefaultNetwork has Multus make the pod's own network, eth0, from another definition.
const annotationDefaultNetwork = "v1.multus-cni.io/default-network"

// network is one selection of that annotation (the Network Plumbing Working
// Group's "Kubernetes Network Custom Resource Definition De-facto Standard").
type network struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Interface string `json:"interface,omitempty"`
	// MAC is the guest's: a network may let no other address pass.
	MAC string `json:"mac,omitempty"`
	// IPs are the addresses that the pod asks for.
	IPs []string `json:"ips,omitempty"`
	// IPAMClaim names that of a VM whose pods have the same addresses, one after the other, as OVN-Kubernetes gives them.
	IPAMClaim string `json:"ipam-claim-reference,omitempty"`
	// Arguments are for a network binding plug-in.
	Arguments map[string]string `json:"cni-args,omitempty"`
}

// argumentNetwork is the argument with the name that the instance has for a network.
const argumentNetwork = "logicNetworkName"

// addNetworks asks for an instance's default network, and for the networks that aren't the pod's own,
// under the interface names by which the node finds them again: net1, net2 and so on, or KubeVirt's names for
// those with network binding plug-ins. The definitions of the plug-ins follow.
func addNetworks(annotations map[string]string, vmi *kubevirt.VirtualMachineInstance, registered map[string]kubevirt.InterfaceBindingPlugin) error {
	var all, plugins []network
	var names []string
	s := &vmi.Spec
	for i, n := range s.Networks {
		if vmspec.IsDefault(n) {
			if err := addDefaultNetwork(annotations, vmi.Namespace, i, n.Multus.NetworkName); err != nil {
				return err
			}
		}
		card := cardOf(s, n.Name)
		if card.Binding != nil {
			if definition := registered[card.Binding.Name].NetworkAttachmentDefinition; definition != "" {
				plugins = append(plugins, selection(definition))
				plugins[len(plugins)-1].Arguments = map[string]string{argumentNetwork: n.Name}
			}
		}
		if !vmspec.IsSecondary(n) {
			continue
		}
		one := selection(n.Multus.NetworkName)
		one.Interface = deviceOf(s, n.Name, len(all)+1)
		one.MAC = macOf(card)
		all, names = append(all, one), append(names, n.Name)
	}
	if _, given := annotations[AnnotationNetworks]; given || len(names) > 0 {
		annotations[AnnotationStartCards] = strings.Join(names, ",")
	}
	if all = append(all, plugins...); len(all) == 0 {
		return nil
	}
	if _, given := annotations[AnnotationNetworks]; given {
		return fmt.Errorf("metadata.annotations[%s]: spec.networks says it; remove one of them", AnnotationNetworks)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("spec.networks: %w", err)
	}
	annotations[AnnotationNetworks] = string(text)
	return nil
}

// macOf returns the MAC address that an instance has for a card, as CNI plug-ins write it; empty for none.
func macOf(card kubevirt.Interface) string { return strings.ReplaceAll(card.MacAddress, "-", ":") }

// selection selects a definition of Multus's by its name, with or without a namespace.
func selection(definition string) network {
	if namespace, name, found := strings.Cut(definition, "/"); found {
		return network{Namespace: namespace, Name: name}
	}
	return network{Name: definition}
}

// cardOf returns the interface of a network; empty if there is none.
func cardOf(s *kubevirt.VirtualMachineInstanceSpec, network string) kubevirt.Interface {
	for _, card := range s.Domain.Devices.Interfaces {
		if card.Name == network {
			return card
		}
	}
	return kubevirt.Interface{}
}

// addDefaultNetwork asks for a definition of the instance's namespace, unless the name has another:
// Multus would look for a bare name in the namespace that it runs in.
func addDefaultNetwork(annotations map[string]string, namespace string, at int, name string) error {
	if _, given := annotations[annotationDefaultNetwork]; given {
		return fmt.Errorf("metadata.annotations[%s]: spec.networks[%d] says it; remove one of them", annotationDefaultNetwork, at)
	}
	if !strings.Contains(name, "/") {
		name = namespace + "/" + name
	}
	annotations[annotationDefaultNetwork] = name
	return nil
}

// ports are those that are passed on to a masqueraded guest, so that Services
// can go by their names.
func ports(s *kubevirt.VirtualMachineInstanceSpec) []corev1.ContainerPort {
	var all []corev1.ContainerPort
	for _, i := range s.Domain.Devices.Interfaces {
		for _, p := range i.Ports {
			protocol := corev1.Protocol(strings.ToUpper(p.Protocol))
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			all = append(all, corev1.ContainerPort{Name: p.Name, Protocol: protocol, ContainerPort: p.Port})
		}
	}
	return all
}
