package vmspec

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkDevices refuses devices of the node that no field of the VM's spec asks for: the
// guest would not have them.
func checkDevices(c *runtimeapi.ContainerConfig, wanted []HostDevice) error {
	given := len(c.GetCDIDevices()) > 0 ||
		slices.ContainsFunc(c.GetDevices(), func(d *runtimeapi.Device) bool { return ofDevicePlugin(d.GetHostPath()) })
	if !given || len(wanted) > 0 {
		return nil
	}
	return fmt.Errorf("container %s: devices: a guest gets only those that spec.domain.devices of annotation %s names; "+
		"add hostDevices or gpus there, or remove the devices", excerpt(c.GetMetadata().GetName()), AnnotationVMI)
}

// ofDevicePlugin reports whether a path on the node is that of a device that plug-ins hand
// to containers, and not that of a volume.
func ofDevicePlugin(host string) bool {
	return slices.ContainsFunc([]string{"/dev/vfio/", "/dev/bus/usb/", "/dev/infiniband/"}, func(folder string) bool { return strings.HasPrefix(host, folder) }) ||
		slices.Contains([]string{"/dev/iommu", "/dev/net/tun", "/dev/vhost-net"}, host)
}

// checkContainer refuses what a container's author may ask for and a machine
// would not do.
func checkContainer(c *runtimeapi.ContainerConfig) error {
	name := c.GetMetadata().GetName()
	var errs []error
	refuse := func(what, why string) {
		errs = append(errs, fmt.Errorf("container %s: %s: %s", excerpt(name), what, why))
	}
	if c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_TARGET {
		refuse("target container", "a VM shares no processes with another container; remove the target")
	}
	if len(c.GetCommand())+len(c.GetArgs()) > 0 {
		refuse("command and args", "a VM runs what its disk boots; remove them")
	}
	return capped(errs)
}
