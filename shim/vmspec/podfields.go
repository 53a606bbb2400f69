package vmspec

import (
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// terminationMessagePath is the kubelet's annotation of a container with the path of its termination message.
const terminationMessagePath = "io.kubernetes.container.terminationMessagePath"

// defaultMessagePath is that path in a pod that does not set it.
const defaultMessagePath = "/dev/termination-log"

// podField is a field of pods that a guest cannot have: a container's author expects an effect of it.
type podField struct {
	name   string // as in a pod's manifest
	set    func(sandbox *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool
	remedy string
}

// podFields lists the fields with which no VM starts. Fields that restrict a container, such as dropped
// capabilities, are not among them: a guest is restricted more than that.
var podFields = []podField{
	{"command and args", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return len(c.GetCommand())+len(c.GetArgs()) > 0
	}, "a VM runs what its disk boots; remove them"},
	{"workingDir", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return c.GetWorkingDir() != ""
	}, "the node starts no program in a guest; remove it"},
	{"lifecycle.stopSignal", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return c.GetStopSignal() != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT && c.GetStopSignal() != runtimeapi.Signal_SIGNAL_SIGTERM
	}, "a guest gets an ACPI shutdown request, and no signal; remove it"},
	{"terminationMessagePath", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		path := c.GetAnnotations()[terminationMessagePath]
		return path != "" && path != defaultMessagePath
	}, "a guest writes no files of its node; remove it, or set terminationMessagePolicy to FallbackToLogsOnError"},
	{"securityContext.privileged", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return c.GetLinux().GetSecurityContext().GetPrivileged()
	}, "a guest gets no rights on its node; remove it, and name host devices in annotation " + AnnotationVMI},
	{"securityContext.seccompProfile", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return ofLocalhost(c.GetLinux().GetSecurityContext().GetSeccomp())
	}, "QEMU has the node's own; use RuntimeDefault"},
	{"securityContext.appArmorProfile", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return ofLocalhost(c.GetLinux().GetSecurityContext().GetApparmor())
	}, "QEMU has the node's own; use RuntimeDefault"},
	{"hostPID", func(sandbox *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return namespaces(sandbox).GetPid() == runtimeapi.NamespaceMode_NODE ||
			containerNamespaces(c).GetPid() == runtimeapi.NamespaceMode_NODE
	}, "a guest does not see processes of its node; remove it"},
	{"hostIPC", func(sandbox *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return namespaces(sandbox).GetIpc() == runtimeapi.NamespaceMode_NODE ||
			containerNamespaces(c).GetIpc() == runtimeapi.NamespaceMode_NODE
	}, "a guest does not share memory with its node; remove it"},
	{"target container", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) bool {
		return containerNamespaces(c).GetPid() == runtimeapi.NamespaceMode_TARGET
	}, "a VM shares no processes with another container; remove the target"},
}

// checkPodFields refuses fields of the pod that would have no effect on the guest.
func checkPodFields(sandbox *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) error {
	var errs []error
	for _, f := range podFields {
		if f.set(sandbox, c) {
			errs = append(errs, fmt.Errorf("container %s: %s: %s", excerpt(c.GetMetadata().GetName()), f.name, f.remedy))
		}
	}
	return capped(errs)
}

// ofTerminationMessage reports whether a mount is the kubelet's file for the termination message: the pod has
// no such volume.
func ofTerminationMessage(c *runtimeapi.ContainerConfig, m *runtimeapi.Mount) bool {
	path := c.GetAnnotations()[terminationMessagePath]
	return path != "" && m.GetContainerPath() == path
}

func namespaces(sandbox *runtimeapi.PodSandboxConfig) *runtimeapi.NamespaceOption {
	return sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func containerNamespaces(c *runtimeapi.ContainerConfig) *runtimeapi.NamespaceOption {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// ofLocalhost reports whether a profile is a file of the node that the pod's author chose.
func ofLocalhost(p *runtimeapi.SecurityProfile) bool {
	return p.GetProfileType() == runtimeapi.SecurityProfile_Localhost
}

// errReadOnlyRoot is the error for a boot disk that cannot be read-only.
var errReadOnlyRoot = errors.New("securityContext.readOnlyRootFilesystem: QEMU has no read-only disk on bus sata; " +
	"use bus virtio or scsi for the image's disk, or remove the field")

// protectRoot makes the disk of the container's image read-only, if the pod says so of the container's root file system.
func protectRoot(c *runtimeapi.ContainerConfig, disks []Disk) error {
	if !c.GetLinux().GetSecurityContext().GetReadonlyRootfs() {
		return nil
	}
	for i := range disks {
		switch d := &disks[i]; {
		case d.Source != SourceImage:
		case d.Bus == BusSATA && !d.CDROM:
			return fmt.Errorf("container %s: %w", excerpt(c.GetMetadata().GetName()), errReadOnlyRoot)
		default:
			d.ReadOnly = true
		}
	}
	return nil
}
