package vmspec

// reasons say why a node does not support fields of the API, by their paths. [hints]
// has those that name what to use instead.
func reasons() map[string]string {
	all := map[string]string{}
	for why, paths := range map[string][]string{
		"memory dumps use volumes[].memoryDump, and VirtualMachineBackups name a PVC": {"utilityVolumes"},
		"autoattachGraphicsDevice has the only graphics card":                         {"domain.devices.video"},
		"libvirt before 11.6 can't set it":                                            {"domain.devices.disks[].blockSize.custom.discardGranularity"},
		"the KubeVirt object selects VMs for backups":                                 {"domain.devices.disks[].changedBlockTracking"},
		"no client plays a guest's sound":                                             {"domain.devices.sound"},
		"a VM's start waits for no session; set sev.session":                          {"domain.launchSecurity.sev.attestation"},
		"no part of nodevirt reads a guest's panic":                                   {"domain.devices.panicDevices"},
		"only s390x has it; use i6300esb":                                             {"domain.devices.watchdog.diag288"},
		"QEMU's BIOS writes to the display alone":                                     {"domain.firmware.bootloader.bios.useSerial"},
		"the RuntimeClass sets the overhead":                                          {"domain.resources.overcommitGuestOverhead"},
		"virtio devices follow version 1.0 alone":                                     {"domain.devices.useVirtioTransitional"},
	} {
		for _, path := range paths {
			all[path] = why
		}
	}
	return all
}
