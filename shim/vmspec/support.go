package vmspec

import (
	"slices"
	"sync"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Supported returns the fields of a VMI's spec that a node supports, with paths
// below "spec". Everything that reads a VMI goes by this one list: what it does
// not name is refused. Manifests have further fields, which never reach a node
// and which controller/manifest lists.
func Supported() fields.Supported {
	return fields.Supported{Rows: rows(), Hints: hints()}.And(fields.Supported{Hints: reasons()})
}

func rows() []fields.Row {
	return slices.Concat(domainRows(), dedicatedRows(), maximumRows(), firmwareRows(), launchSecurityRows(), deviceRows(), hostDeviceRows(), boardRows(), clockRows(), []fields.Row{fields.At("volumes", fields.List(MaxDisks+MaxFilesystems)), fields.At("volumes[].name", fields.Label)},
		volumeRows(func(k VolumeKind) []fields.Row { return k.rows }), networkRows(), credentialRows())
}

// domainRows are the fields of the processor, the memory and the board. [VolumeKinds] has those of volumes.
func domainRows() []fields.Row {
	return []fields.Row{
		fields.At("hostname", fields.Label),
		fields.At("subdomain", fields.Label),
		fields.At("terminationGracePeriodSeconds", fields.Integer(0, 1<<31-1)),
		fields.At("architecture", Architectures),
		fields.At("startStrategy", fields.OneOf(kubevirt.StartStrategyPaused)),

		fields.At("domain.cpu.cores", fields.Integer(0, MaxVCPUs)),
		fields.At("domain.cpu.sockets", fields.Integer(0, MaxVCPUs)),
		fields.At("domain.cpu.threads", fields.Integer(0, MaxVCPUs)),
		fields.At("domain.cpu.model", cpuModel),
		fields.At("domain.cpu.features", fields.List(128)),
		fields.At("domain.cpu.features[].name", cpuFeature),
		fields.At("domain.cpu.features[].policy", cpuPolicy),
		fields.At("domain.memory.guest", fields.Quantity),
		fields.At("domain.memory.reservedOverhead.addedOverhead", fields.Quantity),
		fields.At("domain.memory.reservedOverhead.memLock", fields.OneOf(kubevirt.MemLockRequired, kubevirt.MemLockNotRequired)),
		fields.At("domain.memory.hugepages.pageSize", fields.OneOf("2Mi", "1Gi")),
		fields.At("domain.resources.requests.cpu", fields.Quantity),
		fields.At("domain.resources.requests.memory", fields.Bytes),
		fields.At("domain.resources.limits.cpu", fields.Quantity),
		fields.At("domain.resources.limits.memory", fields.Bytes),
		fields.At("domain.resources.overcommitGuestOverhead", fields.Boolean),
		fields.At("domain.machine.type", machineType),
		fields.At("domain.rebootPolicy", fields.OneOf(kubevirt.RebootPolicyReboot, kubevirt.RebootPolicyTerminate)),
		fields.At("domain.ioThreadsPolicy", fields.OneOf(
			kubevirt.IOThreadsPolicyShared, kubevirt.IOThreadsPolicyAuto, kubevirt.IOThreadsPolicySupplementalPool)),
		fields.At("domain.ioThreads.supplementalPoolThreadCount", fields.Integer(1, maxIOThreads)),

		fields.At("domain.features.acpi.enabled", fields.Boolean),
		fields.At("domain.features.smm.enabled", fields.Boolean),
		// As every machine has it: said, it changes nothing.
		fields.At("domain.features.apic.enabled", fields.Only(true)),
		fields.At("domain.features.apic.endOfInterrupt", fields.Boolean),
		fields.At("domain.clock.utc", fields.Object),
	}
}

// deviceRows are the fields of the VM's devices.
func deviceRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.devices.disks", fields.List(MaxDisks)),
		fields.At("domain.devices.disks[].name", fields.Label),
		fields.At("domain.devices.disks[].disk.bus", diskBus),
		fields.At("domain.devices.disks[].disk.readonly", fields.Boolean),
		fields.At("domain.devices.disks[].disk.pciAddress", pciAddress),
		fields.At("domain.devices.disks[].lun.bus", fields.OneOf(BusSCSI)),
		fields.At("domain.devices.disks[].lun.readonly", fields.Boolean),
		fields.At("domain.devices.disks[].lun.reservation", noReservation),
		fields.At("domain.devices.disks[].cdrom.bus", cdromBus),
		fields.At("domain.devices.disks[].cdrom.readonly", fields.Only(true)),
		fields.At("domain.devices.disks[].cdrom.tray", fields.OneOf(kubevirt.TrayStateOpen, kubevirt.TrayStateClosed)),
		fields.At("domain.devices.disks[].bootOrder", fields.Integer(1, 1<<16)),
		fields.At("domain.devices.disks[].serial", serial),
		fields.At("domain.devices.disks[].tag", tag),
		fields.At("domain.devices.disks[].cache", diskCache),
		fields.At("domain.devices.disks[].io", diskIO),
		fields.At("domain.devices.disks[].errorPolicy", fields.OneOf("stop", "report", "ignore", "enospace")),
		fields.At("domain.devices.disks[].shareable", fields.Boolean),
		fields.At("domain.devices.disks[].dedicatedIOThread", fields.Boolean),
		fields.At("domain.devices.disks[].blockSize.custom.logical", blockSize),
		fields.At("domain.devices.disks[].blockSize.custom.physical", blockSize),
		fields.At("domain.devices.disks[].blockSize.matchVolume.enabled", fields.Boolean),
		fields.At("domain.devices.blockMultiQueue", fields.Boolean),
		fields.At("domain.devices.filesystems", fields.List(MaxFilesystems)),
		fields.At("domain.devices.filesystems[].name", fields.Label),
		fields.At("domain.devices.filesystems[].virtiofs", fields.Object),
		fields.At("domain.devices.interfaces", fields.List(maxInterfaces)),
		fields.At("domain.devices.interfaces[].name", deviceName),
		fields.At("domain.devices.interfaces[].model", cardModel),
		fields.At("domain.devices.interfaces[].macAddress", mac),
		fields.At("domain.devices.interfaces[].bootOrder", fields.Integer(1, 1<<16)),
		fields.At("domain.devices.interfaces[].pciAddress", pciAddress),
		fields.At("domain.devices.interfaces[].tag", tag),
		fields.At("domain.devices.interfaces[].acpiIndex", fields.Integer(1, maxACPIIndex)),
		fields.At("domain.devices.interfaces[].state", fields.OneOf(kubevirt.InterfaceStateLinkUp, kubevirt.InterfaceStateLinkDown, kubevirt.InterfaceStateAbsent)),
		fields.At("domain.devices.interfaces[].bridge", fields.Object),
		fields.At("domain.devices.interfaces[].masquerade", fields.Object),
		fields.At("domain.devices.interfaces[].binding.name", BindingName),
		fields.At("domain.devices.interfaces[].ports", fields.List(256)),
		fields.At("domain.devices.interfaces[].ports[].name", fields.Text(63)),
		fields.At("domain.devices.interfaces[].ports[].protocol", fields.OneOf("TCP", "UDP")),
		fields.At("domain.devices.interfaces[].ports[].port", fields.Integer(1, 1<<16-1)),
		fields.At("domain.devices.interfaces[].portRanges", fields.List(maxPortRanges)),
		fields.At("domain.devices.interfaces[].portRanges[].protocol", fields.OneOf("TCP", "UDP")),
		fields.At("domain.devices.interfaces[].portRanges[].start", fields.Integer(1, 1<<16-1)),
		fields.At("domain.devices.interfaces[].portRanges[].end", fields.Integer(1, 1<<16-1)),
		fields.At("domain.devices.interfaces[].dhcpOptions.bootFileName", dhcpText),
		fields.At("domain.devices.interfaces[].dhcpOptions.tftpServerName", dhcpText),
		fields.At("domain.devices.interfaces[].dhcpOptions.ntpServers", fields.List(fields.MaxElements)),
		fields.At("domain.devices.interfaces[].dhcpOptions.ntpServers[]", address4),
		fields.At("domain.devices.interfaces[].dhcpOptions.privateOptions", fields.List(lastPrivate-firstPrivate+1)),
		fields.At("domain.devices.interfaces[].dhcpOptions.privateOptions[].option", fields.Integer(firstPrivate, lastPrivate)),
		fields.At("domain.devices.interfaces[].dhcpOptions.privateOptions[].value", dhcpText),
		fields.At("domain.devices.networkInterfaceMultiqueue", fields.Boolean),
		fields.At("domain.devices.rng", fields.Object),
		fields.At("domain.devices.clientPassthrough", fields.Object),
		fields.At("domain.devices.downwardMetrics", fields.Object),
		fields.At("domain.devices.tpm.enabled", fields.Boolean),
		fields.At("domain.devices.tpm.persistent", fields.Boolean),
		fields.At("domain.devices.useVirtioTransitional", fields.Boolean),
		fields.At("domain.devices.autoattachMemBalloon", fields.Boolean),
		fields.At("domain.devices.autoattachGraphicsDevice", fields.Boolean),
		fields.At("domain.devices.autoattachSerialConsole", fields.Boolean),
		fields.At("domain.devices.autoattachInputDevice", fields.Boolean),
		fields.At("domain.devices.autoattachPodInterface", fields.Boolean),
		fields.At("domain.devices.autoattachVSOCK", fields.Boolean),
		fields.At("domain.devices.logSerialConsole", fields.Boolean),
		fields.At("domain.devices.disableHotplug", fields.Boolean),
		fields.At("domain.devices.inputs", fields.List(maxInputs)),
		fields.At("domain.devices.inputs[].name", deviceName),
		fields.At("domain.devices.inputs[].type", fields.OneOf(kubevirt.InputTypeTablet)),
		fields.At("domain.devices.inputs[].bus", fields.OneOf(kubevirt.InputBusUSB, kubevirt.InputBusVirtio)),
		fields.At("domain.devices.sound.name", deviceName),
		fields.At("domain.devices.sound.model", fields.OneOf("ich9", "ac97")),
		fields.At("domain.devices.video.type", fields.OneOf("vga", "virtio", "bochs", "cirrus", "ramfb")),
		fields.At("domain.devices.panicDevices", fields.List(maxPanicDevices)),
		fields.At("domain.devices.panicDevices[].model", fields.OneOf(kubevirt.Isa, kubevirt.Hyperv)),
		fields.At("domain.devices.watchdog.name", deviceName),
		fields.At("domain.devices.watchdog.i6300esb.action", fields.OneOf(WatchdogPoweroff, WatchdogReset, WatchdogShutdown)),
	}
}

func networkRows() []fields.Row {
	return []fields.Row{
		fields.At("networks", fields.List(maxInterfaces)),
		fields.At("networks[].name", deviceName),
		fields.At("networks[].pod", fields.Object),
		fields.At("networks[].pod.vmNetworkCIDR", network4),
		fields.At("networks[].pod.vmIPv6NetworkCIDR", network6),
		fields.At("networks[].multus.default", fields.Boolean),
		fields.At("networks[].multus.networkName", fields.Match(`([a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]*`, 317)),
	}
}

// hints help users whose VMI has more fields: they name what to use instead.
func hints() map[string]string {
	const (
		ofPod  = "use the pod's imagePullSecrets"
		inNode = "libvirt would run it in the node's network; use masquerade"
	)
	return map[string]string{
		"domain.devices.disks[].floppy":                        "use disk or cdrom",
		"domain.devices.interfaces[].macvtap":                  "use binding: {name: macvtap}, and register this plug-in in the KubeVirt object",
		"domain.devices.interfaces[].passt":                    inNode,
		"domain.devices.interfaces[].passtBinding":             inNode,
		"domain.devices.interfaces[].slirp":                    "KubeVirt has removed it; use masquerade",
		"domain.firmware.kernelBoot.container.imagePullSecret": ofPod,
		"volumes[].containerDisk.imagePullSecret":              ofPod,
		"volumes[].registryDisk":                               "use containerDisk",
	}
}

// table makes the table of what a node supports of a VMI's spec at the first call.
var table = sync.OnceValue(func() fields.Table { return Supported().Table(func() any { return new(plainSpec) }) })
