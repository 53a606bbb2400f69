package vmi

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AnnotationNetworkStatus is where Multus reports the interfaces that it created.
const AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// attachments returns the pod's secondary interfaces by the number in their name,
// net1 and so on. It omits what it cannot read of Multus' annotation.
func attachments(p *corev1.Pod) map[int]kubevirt.VirtualMachineInstanceNetworkInterface {
	var reported []struct {
		Interface string   `json:"interface"`
		IPs       []string `json:"ips"`
		MAC       string   `json:"mac"`
	}
	// A pod's author may write anything there: no decision depends on it.
	_ = decode.JSON([]byte(p.Annotations[AnnotationNetworkStatus]), &reported)
	all := map[int]kubevirt.VirtualMachineInstanceNetworkInterface{}
	for i := 1; i <= len(reported); i++ {
		name := "net" + strconv.Itoa(i)
		for _, r := range reported {
			if r.Interface != name {
				continue
			}
			one := kubevirt.VirtualMachineInstanceNetworkInterface{
				PodInterfaceName: name, MAC: r.MAC, IPs: r.IPs, InfoSource: "domain, multus-status",
			}
			if len(r.IPs) > 0 {
				one.IP = r.IPs[0]
			}
			all[i] = one
		}
	}
	return all
}

// pluggedCard returns a network card that the VM of a pod has got since it runs; false if the node has not confirmed it.
func pluggedCard(p *corev1.Pod, name string) (kubevirt.VirtualMachineInstanceNetworkInterface, bool) {
	for _, c := range pod.PluggedCards(p) {
		if c.Name != name {
			continue
		}
		one := kubevirt.VirtualMachineInstanceNetworkInterface{
			PodInterfaceName: vmspec.PluginInterface(name), MAC: c.MAC, IPs: c.IPs, InfoSource: "domain, multus-status",
		}
		if len(c.IPs) > 0 {
			one.IP = c.IPs[0]
		}
		return one, true
	}
	return kubevirt.VirtualMachineInstanceNetworkInterface{}, false
}
