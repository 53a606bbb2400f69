package vmspec

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkContainer refuses what a container's author may ask for and a machine
// would not do.
func checkContainer(c *runtimeapi.ContainerConfig) error {
	name := c.GetMetadata().GetName()
	var errs []error
	refuse := func(what, why string) {
		errs = append(errs, fmt.Errorf("container %s: %s: %s", excerpt(name), what, why))
	}
	if len(c.GetCDIDevices()) > 0 {
		refuse("devices", "devices are not supported in a VM yet; remove them")
	}
	if c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_TARGET {
		refuse("target container", "a VM shares no processes with another container; remove the target")
	}
	if len(c.GetCommand())+len(c.GetArgs()) > 0 {
		refuse("command and args", "a VM runs what its disk boots; remove them")
	}
	return capped(errs)
}
