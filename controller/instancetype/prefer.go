package instancetype

import (
	"slices"

	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype/v1beta1"
)

// prefer writes what a preference says where the spec says nothing.
func prefer(p *api.VirtualMachinePreferenceSpec, vmi *kubevirt.VirtualMachineInstanceSpec) {
	preferCPU(p, &vmi.Domain)
	if p.Devices != nil {
		preferDevices(p.Devices, &vmi.Domain.Devices)
		showDevices(vmi)
		preferDisks(p.Devices, vmi.Domain.Devices.Disks)
		preferInterfaces(p.Devices, vmi)
	}
	if p.Features != nil {
		preferFeatures(p.Features, &vmi.Domain)
	}
	if p.Clock != nil {
		preferClock(p.Clock, &vmi.Domain)
	}
	if p.Firmware != nil {
		preferFirmware(p.Firmware, &vmi.Domain)
	}
	if m := p.Machine; m != nil && m.PreferredMachineType != "" {
		if vmi.Domain.Machine == nil {
			vmi.Domain.Machine = new(kubevirt.Machine)
		}
		setUnset(&vmi.Domain.Machine.Type, m.PreferredMachineType)
	}
	if p.PreferredArchitecture != nil {
		setUnset(&vmi.Architecture, *p.PreferredArchitecture)
	}
	if p.PreferredSubdomain != nil {
		setUnset(&vmi.Subdomain, *p.PreferredSubdomain)
	}
	setNil(&vmi.TerminationGracePeriodSeconds, p.PreferredTerminationGracePeriodSeconds)
}

// setUnset sets what has no value.
func setUnset[T comparable](of *T, to T) {
	var none T
	if *of == none {
		*of = to
	}
}

// setNil points at a copy of a value that is preferred.
func setNil[T any](of **T, to *T) {
	if *of == nil && to != nil {
		copied := *to
		*of = &copied
	}
}

func preferCPU(p *api.VirtualMachinePreferenceSpec, domain *kubevirt.DomainSpec) {
	if p.CPU == nil || len(p.CPU.PreferredCPUFeatures) == 0 {
		return
	}
	if domain.CPU == nil {
		domain.CPU = new(kubevirt.CPU)
	}
	for _, f := range p.CPU.PreferredCPUFeatures {
		if !slices.ContainsFunc(domain.CPU.Features, func(have kubevirt.CPUFeature) bool { return have.Name == f.Name }) {
			domain.CPU.Features = append(domain.CPU.Features, f)
		}
	}
}

func preferDevices(p *api.DevicePreferences, devices *kubevirt.Devices) {
	setNil(&devices.AutoattachGraphicsDevice, p.PreferredAutoattachGraphicsDevice)
	setNil(&devices.AutoattachMemBalloon, p.PreferredAutoattachMemBalloon)
	setNil(&devices.AutoattachPodInterface, p.PreferredAutoattachPodInterface)
	setNil(&devices.AutoattachSerialConsole, p.PreferredAutoattachSerialConsole)
	setNil(&devices.NetworkInterfaceMultiQueue, p.PreferredNetworkInterfaceMultiQueue)
	setNil(&devices.Rng, p.PreferredRng)
	setNil(&devices.TPM, p.PreferredTPM)
	setNil(&devices.UseVirtioTransitional, p.PreferredUseVirtioTransitional)
	if devices.Sound != nil {
		setUnset(&devices.Sound.Model, p.PreferredSoundModel)
	}
}

// showDevices writes down the disks and the network card that a machine has though
// nothing is said of them, so that they can be as preferred.
func showDevices(vmi *kubevirt.VirtualMachineInstanceSpec) {
	devices := &vmi.Domain.Devices
	for _, v := range vmi.Volumes {
		if !slices.ContainsFunc(devices.Disks, func(d kubevirt.Disk) bool { return d.Name == v.Name }) {
			devices.Disks = append(devices.Disks, kubevirt.Disk{Name: v.Name})
		}
	}
	attached := devices.AutoattachPodInterface == nil || *devices.AutoattachPodInterface
	if attached && len(devices.Interfaces)+len(vmi.Networks) == 0 {
		vmi.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
		devices.Interfaces = []kubevirt.Interface{*kubevirt.DefaultBridgeNetworkInterface()}
	}
}

func preferDisks(p *api.DevicePreferences, disks []kubevirt.Disk) {
	for i := range disks {
		d := &disks[i]
		if d.CDRom != nil {
			setUnset(&d.CDRom.Bus, p.PreferredCdromBus)
			continue
		}
		if d.LUN != nil {
			continue
		}
		if d.Disk == nil {
			d.Disk = new(kubevirt.DiskTarget)
		}
		setUnset(&d.Disk.Bus, p.PreferredDiskBus)
		setUnset(&d.Cache, p.PreferredDiskCache)
		setUnset(&d.IO, p.PreferredDiskIO)
	}
}

func preferInterfaces(p *api.DevicePreferences, vmi *kubevirt.VirtualMachineInstanceSpec) {
	for i := range vmi.Domain.Devices.Interfaces {
		card := &vmi.Domain.Devices.Interfaces[i]
		setUnset(&card.Model, p.PreferredInterfaceModel)
		ofPod := slices.ContainsFunc(vmi.Networks, func(n kubevirt.Network) bool { return n.Name == card.Name && n.Pod != nil })
		if ofPod && card.InterfaceBindingMethod == (kubevirt.InterfaceBindingMethod{}) && card.Binding == nil {
			setNil(&card.Masquerade, p.PreferredInterfaceMasquerade)
		}
	}
}
