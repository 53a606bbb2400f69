package vmspec

// supported is the one list of what a VMI's spec may say to a node: everything
// that reads a VMI goes by it, and what it doesn't name is refused. Manifests may
// say what [supportedOfPods] lists too. Paths are below
// "spec"; "[]" stands for an element of a list. An object or a list on the way
// to a row has a row of its own only where its bound differs from maxDevices.
var supported = []row{
	{"hostname", label},
	{"terminationGracePeriodSeconds", integer(0, 1<<31-1)},

	{"domain.cpu.cores", integer(0, maxVCPUs)},
	{"domain.cpu.sockets", integer(0, maxVCPUs)},
	{"domain.cpu.threads", integer(0, maxVCPUs)},
	{"domain.cpu.model", cpuModel},
	{"domain.cpu.features", list(128)},
	{"domain.cpu.features[].name", cpuFeature},
	{"domain.cpu.features[].policy", cpuPolicy},
	{"domain.memory.guest", quantity},
	{"domain.resources.requests.cpu", quantity},
	{"domain.resources.requests.memory", quantity},
	{"domain.resources.limits.cpu", quantity},
	{"domain.resources.limits.memory", quantity},
	{"domain.machine.type", machineType},

	// As every machine has them: said, they change nothing.
	{"domain.features.acpi.enabled", only(true)},
	{"domain.features.apic.enabled", only(true)},
	{"domain.features.apic.endOfInterrupt", only(false)},
	{"domain.clock.utc", object},
	{"domain.clock.timer.hpet.present", only(false)},
	{"domain.clock.timer.pit.present", only(true)},
	{"domain.clock.timer.pit.tickPolicy", oneOf("delay")},
	{"domain.clock.timer.rtc.present", only(true)},
	{"domain.clock.timer.rtc.tickPolicy", oneOf("catchup")},

	{"domain.firmware.uuid", match(hexUUID, 36)},
	{"domain.firmware.serial", serial},
	{"domain.firmware.bootloader.bios", object},
	{"domain.firmware.kernelBoot.kernelArgs", kernelArgs},
	{"domain.firmware.kernelBoot.container.image", text(1024)},
	{"domain.firmware.kernelBoot.container.kernelPath", imagePath},
	{"domain.firmware.kernelBoot.container.initrdPath", imagePath},

	{"domain.devices.disks[].name", label},
	{"domain.devices.disks[].disk.bus", diskBus},
	{"domain.devices.disks[].disk.readonly", boolean},
	{"domain.devices.disks[].cdrom.bus", cdromBus},
	{"domain.devices.disks[].cdrom.readonly", only(true)},
	{"domain.devices.disks[].bootOrder", integer(1, 1<<16)},
	{"domain.devices.disks[].serial", serial},
	{"domain.devices.disks[].cache", diskCache},
	{"domain.devices.disks[].io", diskIO},
	{"domain.devices.disks[].errorPolicy", oneOf("stop", "report", "ignore", "enospace")},
	{"domain.devices.disks[].shareable", boolean},
	{"domain.devices.interfaces", list(maxInterfaces)},
	{"domain.devices.interfaces[].name", deviceName},
	{"domain.devices.interfaces[].model", cardModel},
	{"domain.devices.interfaces[].macAddress", mac},
	{"domain.devices.interfaces[].bootOrder", integer(1, 1<<16)},
	{"domain.devices.interfaces[].bridge", object},
	{"domain.devices.interfaces[].masquerade", object},
	{"domain.devices.interfaces[].ports", list(256)},
	{"domain.devices.interfaces[].ports[].name", text(63)},
	{"domain.devices.interfaces[].ports[].protocol", oneOf("TCP", "UDP")},
	{"domain.devices.interfaces[].ports[].port", integer(1, 1<<16-1)},
	{"domain.devices.networkInterfaceMultiqueue", boolean},
	{"domain.devices.rng", object},
	{"domain.devices.autoattachMemBalloon", boolean},
	{"domain.devices.autoattachGraphicsDevice", boolean},
	{"domain.devices.autoattachSerialConsole", only(true)},
	{"domain.devices.autoattachPodInterface", boolean},

	{"volumes[].name", label},
	{"volumes[].containerDisk.image", text(1024)},
	{"volumes[].containerDisk.path", imagePath},
	{"volumes[].containerDisk.imagePullPolicy", oneOf("Always", "IfNotPresent", "Never")},
	{"volumes[].emptyDisk.capacity", quantity},
	{"volumes[].cloudInitNoCloud.userData", secretText},
	{"volumes[].cloudInitNoCloud.userDataBase64", secretText},
	{"volumes[].cloudInitNoCloud.secretRef.name", subdomain},
	{"volumes[].cloudInitNoCloud.networkData", secretText},
	{"volumes[].cloudInitNoCloud.networkDataBase64", secretText},
	{"volumes[].cloudInitNoCloud.networkDataSecretRef.name", subdomain},
	{"networks", list(maxInterfaces)},
	{"networks[].name", deviceName},
	{"networks[].pod", object},
	{"networks[].pod.vmNetworkCIDR", network4},
	{"networks[].pod.vmIPv6NetworkCIDR", network6},
	{"networks[].multus.networkName", match(`([a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]*`, 317)},
}

// wayOut helps those who come with a manifest that uses more; "" where there is
// nothing to use instead.
func wayOut(path string) string {
	switch path {
	case "domain.devices.interfaces[].binding", "domain.devices.interfaces[].macvtap",
		"domain.devices.interfaces[].passt",
		"domain.devices.interfaces[].passtBinding", "domain.devices.interfaces[].slirp",
		"domain.devices.interfaces[].sriov":
		return "use bridge or masquerade"
	case "domain.devices.disks[].lun":
		return "use disk"
	case "domain.firmware.bootloader.efi":
		return "use bios"
	case "networks[].multus.default":
		return "use pod, and let Multus make that network the pod's"
	case "volumes[].cloudInitConfigDrive":
		return "use cloudInitNoCloud"
	case "domain.devices.disks[].floppy":
		return "use disk or cdrom"
	case "volumes[].persistentVolumeClaim":
		return "use a pod without a VMI, which can mount a claim as a disk"
	case "volumes[].registryDisk":
		return "use containerDisk"
	case "instancetype.inferFromVolume", "preference.inferFromVolume":
		return "use name"
	case "firmware.preferredEfi", "firmware.preferredUseEfi":
		return "use preferredUseBios"
	case "dataVolumeTemplates":
		return "use a volume with containerDisk"
	case "livenessProbe.httpGet.host", "readinessProbe.httpGet.host",
		"livenessProbe.tcpSocket.host", "readinessProbe.tcpSocket.host":
		return "a probe goes to the VM's own address"
	case "volumes[].containerDisk.imagePullSecret",
		"domain.firmware.kernelBoot.container.imagePullSecret":
		return "use the pod's imagePullSecrets"
	}
	return ""
}

// nodeTable is what a node takes of a VMI's spec.
func nodeTable() table {
	return newTable(func() any { return new(fields) }, supported, nil)
}

// SupportedPaths returns the paths of a VMI's fields that a node supports, such
// as "spec.domain.devices.disks[].disk.bus", in the order of the API.
func SupportedPaths() []string {
	paths := make([]string, len(supported))
	for i, r := range supported {
		paths[i] = "spec." + r.path
	}
	return paths
}
