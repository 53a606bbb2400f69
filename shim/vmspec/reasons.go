package vmspec

// reasons say why a node does not support fields of the API, by their paths. [hints]
// has those that name what to use instead.
func reasons() map[string]string {
	const (
		hostDevice = "a guest gets no device of its node"
		overhead   = "the RuntimeClass sets the overhead"
		hotplug    = "a running VM gets no further volumes"
		dhcp       = "the guest's DHCP server has the settings of the pod"
		encryption = "no node encrypts a guest's memory"
	)
	return map[string]string{
		"domain.devices.autoattachVSOCK":                             "a guest has no VSOCK; use the pod network",
		"domain.devices.clientPassthrough":                           "a guest gets no USB device of a client",
		"domain.devices.disks[].blockSize.custom.discardGranularity": "libvirt before 11.6 can't set it",
		"domain.devices.disks[].changedBlockTracking":                "no backup reads changed blocks",
		"domain.devices.gpus":                                        hostDevice,
		"domain.devices.hostDevices":                                 hostDevice,
		"domain.devices.interfaces[].dhcpOptions":                    dhcp,
		"domain.devices.interfaces[].portRanges":                     "use ports, or no list to forward all ports",
		"domain.devices.panicDevices":                                "no part of nodevirt reads a guest's panic",
		"domain.devices.sound":                                       "no client plays a guest's sound",
		"domain.devices.useVirtioTransitional":                       "virtio devices follow version 1.0 alone",
		"domain.devices.video":                                       "autoattachGraphicsDevice has the only graphics card",
		"domain.devices.watchdog.diag288":                            "only s390x has it; use i6300esb",
		"domain.firmware.bootloader.bios.useSerial":                  "QEMU's BIOS writes to the display alone",
		"domain.launchSecurity":                                      encryption,
		"domain.memory.reservedOverhead":                             overhead,
		"domain.resources.overcommitGuestOverhead":                   overhead,
		"networks[].resourceClaim":                                   hostDevice,
		"resourceClaims":                                             hostDevice,
		"utilityVolumes":                                             hotplug,
		"volumes[].memoryDump":                                       hotplug,
	}
}
