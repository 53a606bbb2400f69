package vmspec

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// interfaces reads a VMI's network cards. A VMI that names none has one on the
// pod's network, unless it says autoattachPodInterface: false. Every interface
// has the network of its name and every network an interface; without a binding
// it is a bridge.
func interfaces(
	root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, vcpus uint32, boot bootOrder,
) ([]Interface, field.ErrorList) {
	devices := vmi.Domain.Devices
	if len(devices.Interfaces)+len(vmi.Networks) == 0 {
		if auto := devices.AutoattachPodInterface; auto != nil && !*auto {
			return nil, nil
		}
		one := plainInterface(queues(vmi, defaultModel, vcpus))
		one.Model = virtioModel(devices)
		return []Interface{one}, nil
	}
	networks, problems := readNetworks(root.Child("networks"), vmi.Networks)
	var result []Interface
	numbers := map[int]bool{}
	for i, given := range devices.Interfaces {
		at := root.Child("domain", "devices", "interfaces").Index(i)
		network, known := networks[given.Name]
		switch {
		case given.Name == "":
			problems = append(problems, field.Required(at.Child("name"), ""))
		case !known:
			problems = append(problems,
				invalid(at.Child("name"), given.Name, "no network has this name"))
		}
		delete(networks, given.Name)
		if given.State == kubevirt.InterfaceStateAbsent { // the VM has lost it, or has never had it
			if given.Masquerade != nil || given.Binding != nil || known && network.pod != nil {
				problems = append(problems, refused(at.Child("state"), "absent goes with bridge or sriov, on a secondary network"))
			}
			continue
		}
		if given.BootOrder != nil {
			problems = append(problems, boot.take(at, *given.BootOrder)...)
		}
		if given.SRIOV != nil { // [hostDevices] reads it
			problems = append(problems, checkSRIOV(at, given, network, known)...)
			continue
		}
		given.Model = cmp.Or(given.Model, virtioModel(devices))
		one, p := readInterface(at, given, network)
		problems = append(problems, p...)
		if n := given.ACPIIndex; n > 0 && numbers[n] {
			problems = append(problems, field.Duplicate(at.Child("acpiIndex"), n))
		}
		numbers[given.ACPIIndex] = true
		one.Queues = queues(vmi, one.Model, vcpus)
		result = append(result, one)
	}
	for i, network := range vmi.Networks {
		if _, unused := networks[network.Name]; unused {
			problems = append(problems, refused(root.Child("networks").Index(i),
				"no interface has the name %q; add one to %s", network.Name, root.Child("domain", "devices", "interfaces")))
			delete(networks, network.Name)
		}
	}
	return result, problems
}

// plainInterface is the card of a pod that says nothing of networks.
func plainInterface(queues uint32) Interface {
	return Interface{
		Name: defaultInterface, Model: defaultModel, Binding: BindingBridge, Device: podDevice, Queues: queues,
	}
}

// virtioModel returns the model of cards whose author names none.
func virtioModel(d kubevirt.Devices) string {
	if isOr(d.UseVirtioTransitional, false) {
		return transitional
	}
	return defaultModel
}

// maxQueues is what the kernel gives to one tap (MAX_TAP_QUEUES).
const maxQueues = 256

// queues is one for each vCPU where the VMI wants that, and the model can.
func queues(vmi *kubevirt.VirtualMachineInstanceSpec, model string, vcpus uint32) uint32 {
	if wanted := vmi.Domain.Devices.NetworkInterfaceMultiQueue; wanted == nil || !*wanted || (model != defaultModel && model != transitional) {
		return 0
	}
	return min(vcpus, maxQueues)
}

// network is one of a VMI's, with its interface in the pod.
type network struct {
	device string
	pod    *kubevirt.PodNetwork // nil for a secondary one
	claim  *kubevirt.ClaimRequest
	at     *field.Path // of the ResourceClaim
}

// IsPods reports whether a network is the pod's, from its CNI plug-in or from a definition of Multus.
func IsPods(n kubevirt.Network) bool { return podNetwork(n) != nil }

// IsSecondary reports whether a network is one of Multus beside the pod's own.
func IsSecondary(n kubevirt.Network) bool { return n.Multus != nil && !n.Multus.Default }

// IsDefault reports whether a network is one of Multus in place of the pod's.
func IsDefault(n kubevirt.Network) bool { return n.Multus != nil && n.Multus.Default }

// podNetwork returns what a VMI says of the pod's own network, which Multus makes from the VMI's default
// one; nil if the network is another.
func podNetwork(n kubevirt.Network) *kubevirt.PodNetwork {
	if IsDefault(n) {
		return new(kubevirt.PodNetwork)
	}
	return n.Pod
}

// readNetworks finds each network's interface in the pod: eth0 for the pod's own, and for
// those of Multus net1, net2 …, in their order, as Multus names them.
func readNetworks(at *field.Path, given []kubevirt.Network) (map[string]network, field.ErrorList) {
	var problems field.ErrorList
	all := map[string]network{}
	secondary, podAt := 0, -1
	for i, n := range given {
		one := network{pod: podNetwork(n), device: podDevice}
		switch {
		case n.Name == "":
			problems = append(problems, field.Required(at.Index(i).Child("name"), ""))
			continue
		case n.Pod == nil && n.Multus == nil && n.ResourceClaim == nil:
			problems = append(problems, field.Required(at.Index(i).Child("pod"), "or multus"))
		case n.Pod != nil && n.Multus != nil:
			problems = append(problems, refused(at.Index(i), "a network is either the pod's or one of Multus"))
		case n.ResourceClaim != nil && (n.Pod != nil || n.Multus != nil):
			problems = append(problems, refused(at.Index(i), "a network of a resourceClaim has no other kind"))
		case n.ResourceClaim != nil:
			one.device, one.claim, one.at = "", n.ResourceClaim, at.Index(i).Child("resourceClaim")
		case n.Multus != nil && n.Multus.NetworkName == "":
			problems = append(problems, field.Required(at.Index(i).Child("multus", "networkName"), ""))
		case IsSecondary(n):
			secondary++
			one.device = "net" + strconv.Itoa(secondary)
		case podAt >= 0:
			kind := at.Index(i).Child("pod")
			if IsDefault(n) {
				kind = at.Index(i).Child("multus", "default")
			}
			problems = append(problems, refused(kind, "networks[%d] is the pod's network already", podAt))
		default:
			podAt = i
		}
		if _, twice := all[n.Name]; twice {
			problems = append(problems, field.Duplicate(at.Index(i).Child("name"), excerpt(n.Name)))
		}
		all[n.Name] = one
	}
	return all, problems
}

func readInterface(at *field.Path, given kubevirt.Interface, n network) (Interface, field.ErrorList) {
	var problems field.ErrorList
	result := Interface{
		Name: given.Name, Model: given.Model, Binding: BindingBridge, Device: n.device,
		PCI: PCIAddress(given.PciAddress), Tag: given.Tag,
		ACPIIndex: uint(max(given.ACPIIndex, 0)), Unplugged: given.State == kubevirt.InterfaceStateLinkDown,
	}
	// Dashes and dots are fine with KubeVirt, libvirt wants colons; the table has checked it.
	if address, err := net.ParseMAC(given.MacAddress); err == nil {
		result.MAC = address.String()
	}
	if given.BootOrder != nil {
		result.BootOrder = *given.BootOrder
	}
	if n.claim != nil {
		problems = append(problems, refused(at, "the network of a resourceClaim goes with sriov"))
	}
	options, p := dhcpOptions(at.Child("dhcpOptions"), given.DHCPOptions)
	result.DHCP, problems = options, append(problems, p...)
	switch {
	case given.Binding != nil:
		problems = append(problems, result.readPlugin(at, given, n)...)
		return result, problems
	case given.Masquerade == nil:
		return result, append(problems, bridgeOnly(at, given, n)...)
	}
	result.Binding = BindingMasquerade
	switch {
	case given.Bridge != nil:
		problems = append(problems, refused(at, "an interface has one binding, not bridge and masquerade"))
	case n.device != "" && n.pod == nil:
		problems = append(problems, refused(at.Child("masquerade"), "goes with the pod's network; use bridge"))
	}
	for i, p := range given.Ports {
		if p.Port == 0 {
			problems = append(problems, field.Required(at.Child("ports").Index(i).Child("port"), ""))
		}
		protocol := strings.ToLower(p.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		result.Ports = append(result.Ports, Port{Protocol: protocol, Number: uint16(p.Port)})
	}
	ranges, p := portRanges(at.Child("portRanges"), given)
	result.Ports, problems = append(result.Ports, ranges...), append(problems, p...)
	if n.pod != nil {
		result.NetworkCIDR, result.NetworkCIDR6 = n.pod.VMNetworkCIDR, n.pod.VMIPv6NetworkCIDR
		if p, err := parseCIDR(result.NetworkCIDR); err == nil {
			result.NetworkCIDR = p.String()
		}
	}
	return result, problems
}

// portRanges reads ranges of ports, which replace the list of ports. As with KubeVirt they don't overlap.
func portRanges(at *field.Path, given kubevirt.Interface) ([]Port, field.ErrorList) {
	var problems field.ErrorList
	var ranges []Port
	if len(given.PortRanges) > 0 && len(given.Ports) > 0 {
		problems = append(problems, refused(at, "goes without ports: use one of them"))
	}
	for i, r := range given.PortRanges {
		at := at.Index(i)
		one := Port{Protocol: strings.ToLower(r.Protocol), Number: uint16(r.Start), End: uint16(r.End)}
		overlaps := func(o Port) bool {
			return o.Protocol == one.Protocol && o.Number <= one.End && one.Number <= o.End
		}
		switch {
		case r.Protocol == "" || r.Start == 0 || r.End == 0:
			problems = append(problems, field.Required(at, "protocol, start and end"))
		case one.End < one.Number:
			problems = append(problems, invalid(at.Child("end"), r.End, "less than start, %d", r.Start))
		case slices.ContainsFunc(ranges, overlaps):
			problems = append(problems, refused(at, "overlaps another range"))
		}
		ranges = append(ranges, one)
	}
	return ranges, problems
}

// dhcpOptions reads the options that the pod's DHCP server gives to the guest.
func dhcpOptions(at *field.Path, given *kubevirt.DHCPOptions) (*DHCPOptions, field.ErrorList) {
	if given == nil {
		return nil, nil
	}
	var problems field.ErrorList
	result := &DHCPOptions{BootFile: given.BootFileName, TFTPServer: given.TFTPServerName, NTPServers: given.NTPServers}
	for i, p := range given.PrivateOptions {
		at, number := at.Child("privateOptions").Index(i), uint8(p.Option)
		if _, twice := result.Private[number]; twice {
			problems = append(problems, field.Duplicate(at.Child("option"), p.Option))
		}
		switch {
		case number == 0:
			problems = append(problems, field.Required(at.Child("option"), ""))
			continue
		case p.Value == "":
			problems = append(problems, field.Required(at.Child("value"), ""))
		case result.Private == nil:
			result.Private = map[uint8]string{}
		}
		result.Private[number] = p.Value
	}
	return result, problems
}

// bridgeOnly refuses what means nothing to a guest that has the pod's own address.
func bridgeOnly(at *field.Path, given kubevirt.Interface, n network) field.ErrorList {
	var problems field.ErrorList
	if len(given.Ports) > 0 {
		problems = append(problems, refused(at.Child("ports"), "goes with masquerade: a bridged guest has all ports"))
	}
	if len(given.PortRanges) > 0 {
		problems = append(problems, refused(at.Child("portRanges"), "goes with masquerade: a bridged guest has all ports"))
	}
	if n.pod != nil && n.pod.VMNetworkCIDR+n.pod.VMIPv6NetworkCIDR != "" {
		problems = append(problems, refused(at, "the network's vmNetworkCIDR goes with masquerade: "+
			"a bridged guest has the pod's address"))
	}
	return problems
}

// checkSRIOV refuses what a device of the node can't have. As with KubeVirt the device
// decides its model.
func checkSRIOV(at *field.Path, given kubevirt.Interface, n network, known bool) field.ErrorList {
	var problems field.ErrorList
	if given.Bridge != nil || given.Masquerade != nil || given.Binding != nil {
		problems = append(problems, refused(at, "an interface has one binding, not sriov and another"))
	}
	if known && n.claim == nil && (n.pod != nil || n.device == podDevice) {
		problems = append(problems, refused(at.Child("sriov"), "goes with a network of multus or of a resourceClaim"))
	}
	if len(given.Ports) > 0 {
		problems = append(problems, refused(at.Child("ports"), "goes with masquerade: the device has all ports"))
	}
	if len(given.PortRanges) > 0 {
		problems = append(problems, refused(at.Child("portRanges"), "goes with masquerade: the device has all ports"))
	}
	if given.DHCPOptions != nil {
		problems = append(problems, refused(at.Child("dhcpOptions"), "the device's network has its own DHCP server"))
	}
	if given.State == kubevirt.InterfaceStateLinkDown {
		problems = append(problems, refused(at.Child("state"), "the device's link is not the VM's to change"))
	}
	if given.ACPIIndex > 0 {
		problems = append(problems, refused(at.Child("acpiIndex"), "a device of the node has none; use pciAddress"))
	}
	if n.claim != nil && given.MacAddress != "" {
		problems = append(problems, refused(at.Child("macAddress"), "the ResourceClaim's driver sets the address"))
	}
	return problems
}
