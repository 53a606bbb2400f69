package vmspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkDevices refuses devices of the node that no field of the VM's spec asks for: the
// guest would not have them.
func checkDevices(c *runtimeapi.ContainerConfig, spec Spec) error {
	plugged := slices.ContainsFunc(spec.Interfaces, func(i Interface) bool { return i.Plugin != "" })
	given := len(c.GetCDIDevices()) > 0 ||
		slices.ContainsFunc(c.GetDevices(), func(d *runtimeapi.Device) bool {
			host := d.GetHostPath()
			return ofDevicePlugin(host) && host != vsockDevice && (!plugged || !macvtapDevice.MatchString(host))
		})
	if !given || len(spec.HostDevices) > 0 {
		return nil
	}
	return fmt.Errorf("container %s: devices: a guest gets only those that spec.domain.devices of annotation %s names; "+
		"add hostDevices or gpus there, or remove the devices", excerpt(c.GetMetadata().GetName()), AnnotationVMI)
}

// vsockDevice is the kernel's device for sockets of guests, which KubeVirt's device plug-in hands out.
const vsockDevice = "/dev/vhost-vsock"

// checkVSOCK refuses a VM with such sockets whose container was not given the device: a guest reaches
// what listens on the node, so the node's administrator decides who may have it.
func checkVSOCK(c *runtimeapi.ContainerConfig, spec Spec) error {
	given := slices.ContainsFunc(c.GetDevices(), func(d *runtimeapi.Device) bool { return d.GetHostPath() == vsockDevice })
	if given == spec.VSOCK {
		return nil
	}
	name := excerpt(c.GetMetadata().GetName())
	if given {
		return fmt.Errorf("container %s: devices: %s goes with spec.domain.devices.autoattachVSOCK of annotation %s; "+
			"add that, or remove the device", name, vsockDevice, AnnotationVMI)
	}
	return fmt.Errorf("%s: spec.domain.devices.autoattachVSOCK: container %s was not given %s; "+
		"request %s of a device plug-in", AnnotationVMI, name, vsockDevice, VSOCKResource)
}

// VSOCKResource is KubeVirt's extended resource of the device for sockets of guests.
const VSOCKResource = "devices.kubevirt.io/vhost-vsock"

// ofDevicePlugin reports whether a path on the node is that of a device that plug-ins hand
// to containers, and not that of a volume.
func ofDevicePlugin(host string) bool {
	return slices.ContainsFunc([]string{"/dev/vfio/", "/dev/bus/usb/", "/dev/infiniband/"}, func(folder string) bool { return strings.HasPrefix(host, folder) }) ||
		slices.Contains([]string{"/dev/iommu", "/dev/net/tun", "/dev/vhost-net", vsockDevice}, host) || macvtapDevice.MatchString(host)
}

// macvtapDevice matches the node of a macvtap. The device plug-in of a network binding plug-in hands it out, and the
// shim finds it in the pod.
var macvtapDevice = regexp.MustCompile(`^/dev/tap[0-9]{1,10}$`)
