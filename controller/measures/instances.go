package measures

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// instances reports VirtualMachineInstances.
type instances struct{ set }

const (
	instanceInfo   = "vmi_info"
	notEvictable   = "vmi_non_evictable"
	addresses      = "vmi_status_addresses"
	instanceCards  = "vmi_vnic_info"
	ephemeral      = "vmi_contains_ephemeral_hotplug_volume"
	addressType    = "InternalIP"
	systemOS       = "vm.kubevirt.io/os"
	systemWorkload = "vm.kubevirt.io/workload"
	systemFlavor   = "vm.kubevirt.io/flavor"
)

func newInstances() instances {
	i := instances{set{}}
	i.add(instanceInfo, "1 for an instance, with what it is.",
		"node", "namespace", "name", "phase", "os", "workload", "flavor", "instance_type", "preference",
		"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
		"evictable", "outdated", "vmi_pod")
	i.add(notEvictable, "1 for an instance that an eviction should move, and which can't.", "node", "namespace", "name")
	i.add(addresses, "1 for an address of an instance.",
		"node", "namespace", "name", "vnic_name", "interface_name", "address", "type")
	i.add(instanceCards, "1 for a network card of an instance.", cardLabels()...)
	i.add(ephemeral, "1 for a volume that an instance has got, and that its VM will not have.", "namespace", "name", "volume_name")
	return i
}

func (s instances) collect(all *objects, send sender) {
	for i := range all.instances.Items {
		vmi := &all.instances.Items[i]
		guest, node, evictable := vmi.Status.GuestOSInfo, vmi.Status.NodeName, evictable(vmi, all.config)
		machine := ""
		if m := vmi.Status.Machine; m != nil {
			machine = m.Type
		}
		send(s.set[instanceInfo], 1,
			node, vmi.Namespace, vmi.Name, strings.ToLower(string(vmi.Status.Phase)),
			vmi.Annotations[systemOS], vmi.Annotations[systemWorkload], vmi.Annotations[systemFlavor],
			cmp.Or(vmi.Annotations[kubevirt.InstancetypeAnnotation], vmi.Annotations[kubevirt.ClusterInstancetypeAnnotation]),
			cmp.Or(vmi.Annotations[kubevirt.PreferenceAnnotation], vmi.Annotations[kubevirt.ClusterPreferenceAnnotation]),
			guest.KernelRelease, machine, guest.Machine, guest.Name, guest.VersionID,
			strconv.FormatBool(evictable), "false", pod.Current(vmi))
		blocked := 0.0
		if !evictable {
			blocked = 1
		}
		send(s.set[notEvictable], blocked, node, vmi.Namespace, vmi.Name)
		for _, card := range vmi.Status.Interfaces {
			for _, ip := range card.IPs {
				send(s.set[addresses], 1, node, vmi.Namespace, vmi.Name, card.Name, card.InterfaceName, ip, addressType)
			}
		}
		sendCards(send, s.set[instanceCards], vmi.Namespace, vmi.Name, &vmi.Spec)
		s.sendEphemeral(send, vmi, all)
	}
}

// sendEphemeral sends the plugged volumes of an instance that its VM will not have after a restart.
func (s instances) sendEphemeral(send sender, vmi *kubevirt.VirtualMachineInstance, all *objects) {
	var plugged []string
	for _, v := range vmi.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable || v.DataVolume != nil && v.DataVolume.Hotpluggable {
			plugged = append(plugged, v.Name)
		}
	}
	owner := metav1.GetControllerOf(vmi)
	if len(plugged) == 0 || owner == nil || owner.Kind != kubevirt.VirtualMachineGroupVersionKind.Kind {
		return
	}
	vm := all.machine(client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name})
	if vm == nil || vm.Spec.Template == nil {
		return
	}
	for _, v := range vm.Spec.Template.Spec.Volumes {
		plugged = slices.DeleteFunc(plugged, func(name string) bool { return name == v.Name })
	}
	for _, name := range plugged {
		send(s.set[ephemeral], 1, vmi.Namespace, vmi.Name, name)
	}
}

// evictable reports whether an instance may leave its node as its strategy has it.
func evictable(vmi *kubevirt.VirtualMachineInstance, c config.Config) bool {
	if c.EvictionStrategy(vmi) != kubevirt.EvictionStrategyLiveMigrate {
		return true
	}
	for _, of := range vmi.Status.Conditions {
		if of.Type == kubevirt.VirtualMachineInstanceIsMigratable {
			return of.Status == corev1.ConditionTrue
		}
	}
	return false
}

func cardLabels() []string {
	return []string{"name", "namespace", "vnic_name", "binding_type", "network", "binding_name", "model"}
}

// podNetwork is KubeVirt's name of it.
const podNetwork = "pod networking"

// sendCards sends the network cards of an instance, or of a VM's template.
func sendCards(send sender, d *prometheus.Desc, namespace, name string, s *kubevirt.VirtualMachineInstanceSpec) {
	networks := map[string]string{}
	for _, n := range s.Networks {
		switch {
		case n.Multus != nil:
			networks[n.Name] = n.Multus.NetworkName
		case n.Pod != nil:
			networks[n.Name] = podNetwork
		}
	}
	for _, card := range s.Domain.Devices.Interfaces {
		kind, binding := "core", bindingOf(card)
		if card.Binding != nil {
			kind = "plugin"
		}
		send(d, 1, name, namespace, card.Name, kind, networks[card.Name], binding, card.Model)
	}
}

// bindingOf returns how a card is connected.
func bindingOf(card kubevirt.Interface) string {
	switch {
	case card.Binding != nil:
		return card.Binding.Name
	case card.Masquerade != nil:
		return "masquerade"
	case card.Bridge != nil:
		return "bridge"
	case card.SRIOV != nil:
		return "sriov"
	}
	return ""
}
