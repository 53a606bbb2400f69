package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

const mib = 1 << 20

// XML returns desc as libvirt's domain XML. Untrusted text only passes through an XML
// encoder and never becomes an element or a QEMU option.
func XML(desc Description) (string, error) {
	d, err := domainOf(desc)
	if err != nil {
		return "", fmt.Errorf("describe domain %s: %w", desc.Name, err)
	}
	text, err := d.Marshal()
	if err != nil {
		return "", fmt.Errorf("encode domain %s: %w", desc.Name, err)
	}
	return text, nil
}

// kinds returns libvirt's names of domains by their accelerators.
func kinds() map[Accelerator]string { return map[Accelerator]string{KVM: "kvm", TCG: "qemu"} }

func domainOf(desc Description) (*libvirtxml.Domain, error) {
	kind := kinds()[desc.Accelerator]
	if kind == "" {
		return nil, fmt.Errorf("accelerator %q is neither %s nor %s", desc.Accelerator, KVM, TCG)
	}
	if desc.Spec.Memory < mib {
		return nil, fmt.Errorf("memory of %d bytes is less than 1 MiB", desc.Spec.Memory)
	}
	meta, err := metadata(desc)
	if err != nil {
		return nil, err
	}
	devices, err := devices(desc)
	if err != nil {
		return nil, err
	}
	args, err := arguments(desc)
	if err != nil {
		return nil, err
	}
	d := &libvirtxml.Domain{
		Type:            kind,
		Name:            desc.Name,
		UUID:            desc.UUID,
		GenID:           generation(desc),
		Metadata:        meta,
		Memory:          &libvirtxml.DomainMemory{Value: uint(desc.Spec.Memory / mib), Unit: "MiB"},
		MemoryBacking:   memoryBacking(desc.Spec),
		IOThreads:       uint(desc.Spec.IOThreads),
		VCPU:            vcpus(desc.Spec.CPU),
		SysInfo:         sysinfo(desc),
		OS:              boot(desc),
		Features:        features(desc),
		CPU:             cpu(desc),
		Clock:           clock(desc),
		PM:              noSleep(desc),
		OnPoweroff:      "destroy",
		OnReboot:        onReboot(desc),
		OnCrash:         "destroy",
		LaunchSecurity:  launchSecurity(desc),
		Devices:         devices,
		SecLabel:        []libvirtxml.DomainSecLabel{owner(desc)},
		QEMUCommandline: args,
		QEMUOverride:    agentOverride(),
	}
	d.QEMUCapabilities = capabilities(d.CPU)
	encrypt(d, desc)
	roomForMemory(d, desc.Spec)
	if err := placement(d, desc); err != nil {
		return nil, err
	}
	return d, nil
}

// onReboot returns what libvirt does when the guest reboots.
func onReboot(desc Description) string {
	if desc.Spec.EndOnReboot {
		return "destroy"
	}
	return "restart"
}

// noSleep keeps the guest from suspending itself: nothing would resume it. A board of arm64 can't suspend.
func noSleep(desc Description) *libvirtxml.DomainPM {
	if isARM(desc) {
		return nil
	}
	return &libvirtxml.DomainPM{
		SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
		SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
	}
}

// owner makes QEMU run as the VM's own user. libvirt must not relabel files: they
// are passed as descriptors, or belong to that user already. The plus signs keep
// libvirt from looking up the numbers as names.
func owner(desc Description) libvirtxml.DomainSecLabel {
	return libvirtxml.DomainSecLabel{
		Type:    "static",
		Model:   "dac",
		Relabel: "no",
		Label:   fmt.Sprintf("+%d:+%d", desc.UID, desc.GID),
	}
}
