package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// requestHostDevices requests what the VM's container needs of the node's devices: one of an
// extended resource for each device of a plug-in and each network that has a resource, and
// the requests of ResourceClaims.
func requestHostDevices(r *corev1.ResourceRequirements, devices []vmspec.HostDevice, s *kubevirt.VirtualMachineInstanceSpec, around Surroundings) {
	for _, d := range devices {
		name := d.Resource
		if d.Kind == vmspec.HostDeviceSRIOV {
			name = around.NetworkResources[networkOf(s, d.Name)]
		}
		requestOne(r, name)
	}
	for _, card := range s.Domain.Devices.Interfaces {
		if card.Binding != nil { // such as a macvtap, which a device plug-in hands out
			requestOne(r, around.NetworkResources[networkOf(s, card.Name)])
		}
	}
	if d := s.Domain.Devices.AutoattachVSOCK; d != nil && *d {
		one := *resource.NewQuantity(1, resource.DecimalSI)
		setLimit(r, vmspec.VSOCKResource, one)
		r.Requests[vmspec.VSOCKResource] = one
	}
	add := func(c *kubevirt.ClaimRequest) {
		if c == nil || c.ClaimName == "" {
			return
		}
		if claim := (corev1.ResourceClaim{Name: c.ClaimName, Request: c.RequestName}); !slices.Contains(r.Claims, claim) {
			r.Claims = append(r.Claims, claim)
		}
	}
	for _, g := range s.Domain.Devices.GPUs {
		add(g.ClaimRequest)
	}
	for _, d := range s.Domain.Devices.HostDevices {
		add(d.ClaimRequest)
	}
	for _, n := range s.Networks {
		add(n.ResourceClaim)
	}
}

// requestOne requests one more of an extended resource; none if the name is empty.
func requestOne(r *corev1.ResourceRequirements, name string) {
	if name == "" {
		return
	}
	one := r.Limits[corev1.ResourceName(name)]
	one.Add(*resource.NewQuantity(1, resource.DecimalSI))
	setLimit(r, corev1.ResourceName(name), one)
	r.Requests[corev1.ResourceName(name)] = one
}

// networkOf returns the name of the network of Multus that an interface is on.
func networkOf(s *kubevirt.VirtualMachineInstanceSpec, name string) string {
	for _, n := range s.Networks {
		if n.Name == name && n.Multus != nil {
			return n.Multus.NetworkName
		}
	}
	return ""
}

// DeviceNetworks returns the networks of Multus whose interfaces are devices of the node, or have network binding
// plug-ins, as the instance names them.
func DeviceNetworks(s *kubevirt.VirtualMachineInstanceSpec) []string {
	var all []string
	for _, card := range s.Domain.Devices.Interfaces {
		if name := networkOf(s, card.Name); (card.SRIOV != nil || card.Binding != nil) && name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// resourceClaims returns the instance's ResourceClaims as the pod has them.
func resourceClaims(s *kubevirt.VirtualMachineInstanceSpec) []corev1.PodResourceClaim {
	var all []corev1.PodResourceClaim
	for _, c := range s.ResourceClaims {
		all = append(all, corev1.PodResourceClaim{
			Name: c.Name, ResourceClaimName: c.ResourceClaimName, ResourceClaimTemplateName: c.ResourceClaimTemplateName,
		})
	}
	return all
}
