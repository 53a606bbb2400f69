package domain

import (
	"fmt"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// balloonPeriod is the interval, in seconds, at which QEMU asks a guest for its
// memory statistics. Each request wakes the guest.
const balloonPeriod = 10

func devices(desc Description) (*libvirtxml.DomainDeviceList, error) {
	disks, err := disks(desc)
	if err != nil {
		return nil, err
	}
	nics, err := nics(desc)
	if err != nil {
		return nil, err
	}
	filesystems, err := filesystems(desc)
	if err != nil {
		return nil, err
	}
	hostdevs, err := hostdevs(desc)
	if err != nil {
		return nil, err
	}
	all := &libvirtxml.DomainDeviceList{
		Emulator:    desc.Emulator,
		Disks:       disks,
		Controllers: controllers(desc),
		Interfaces:  nics,
		Hostdevs:    hostdevs,
		Serials:     serials(desc),
		Consoles:    consoles(desc),
		Channels:    channels(desc),
		RedirDevs:   usbSlots(desc),
		Inputs:      inputs(desc),
		Graphics:    graphics(desc),
		Videos:      videos(desc),
		MemBalloon:  balloon(desc),
		RNGs:        rng(desc.Spec),
		Watchdogs:   watchdogs(desc.Spec.Watchdog),
		TPMs:        tpms(desc),
		Filesystems: filesystems,
		Sounds:      sounds(desc.Spec.Sound),
		Panics:      panics(desc),
		VSock:       vsock(desc),
	}
	addPorts(all, desc.Spec)
	return all, nil
}

// controllers returns the controllers for which libvirt's default is not wanted:
// no USB without a device on it, and virtio for SCSI disks.
func controllers(desc Description) []libvirtxml.DomainController {
	spec := desc.Spec
	all := []libvirtxml.DomainController{usbController(desc)}
	scsi := func(d vmspec.Disk) bool { return d.Bus == vmspec.BusSCSI }
	if slices.ContainsFunc(spec.Disks, scsi) {
		c := libvirtxml.DomainController{Type: "scsi", Model: "virtio-scsi"}
		if spec.Transitional {
			c.Model = transitional
		}
		if spec.IOThreads > 0 { // the first one is never a disk's own
			c.Driver = &libvirtxml.DomainControllerDriver{IOThread: 1}
		}
		all = append(all, c)
	}
	switch serial := (libvirtxml.DomainController{Type: virtioSerial}); { // of the guest agent's port and of virtio consoles
	case spec.Transitional:
		serial.Model = transitional
		all = append(all, serial)
	case spec.LaunchSecurity.Encrypts():
		all = append(all, serial)
	}
	return all
}

const (
	virtio       = "virtio"
	virtioSerial = "virtio-serial"
	transitional = "virtio-transitional"
)

// virtioModel returns the model of the VM's virtio devices that have no other.
func virtioModel(spec vmspec.Spec) string {
	if spec.Transitional {
		return transitional
	}
	return virtio
}

func nics(desc Description) ([]libvirtxml.DomainInterface, error) {
	if len(desc.NICs) != len(desc.Spec.Interfaces) {
		return nil, fmt.Errorf("%d network cards for %d in the spec",
			len(desc.NICs), len(desc.Spec.Interfaces))
	}
	var all []libvirtxml.DomainInterface
	for _, spec := range desc.Spec.Interfaces {
		place, err := pciAddress(spec.PCI)
		if err != nil {
			return nil, fmt.Errorf("network card %s: %w", spec.Name, err)
		}
		i := slices.IndexFunc(desc.NICs, func(n NIC) bool { return n.Name == spec.Name })
		if i < 0 {
			return nil, fmt.Errorf("network card %s has no tap", spec.Name)
		}
		card := nic(spec, desc.NICs[i])
		card.Address = place
		all = append(all, card)
	}
	return all, nil
}

// nic is a network card on a tap that libvirt neither creates nor configures nor
// removes. A card without a boot order has no option ROM, so that the firmware
// does not try to boot from the network. The alias can't be that of a disk: names of
// disks have no underscore.
func nic(spec vmspec.Interface, n NIC) libvirtxml.DomainInterface {
	i := libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: n.MAC.String()},
		Source: &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target: &libvirtxml.DomainInterfaceTarget{Dev: n.Tap, Managed: "no"},
		Model:  &libvirtxml.DomainInterfaceModel{Type: spec.Model},
		Alias:  &libvirtxml.DomainAlias{Name: nicAlias(spec)},
	}
	if spec.ACPIIndex > 0 {
		i.ACPI = &libvirtxml.DomainDeviceACPI{Index: spec.ACPIIndex}
	}
	if spec.Unplugged {
		i.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
	}
	if spec.BootOrder > 0 {
		i.Boot = &libvirtxml.DomainDeviceBoot{Order: spec.BootOrder}
	} else {
		i.ROM = &libvirtxml.DomainROM{Enabled: "no"}
	}
	if spec.Queues > 1 { // the tap has several too
		i.Driver = &libvirtxml.DomainInterfaceDriver{Queues: uint(spec.Queues)}
	}
	if n.MTU > 0 {
		i.MTU = &libvirtxml.DomainInterfaceMTU{Size: uint(n.MTU)}
	}
	return i
}

// consoles returns the serial console, which libvirt requires first, and virtio consoles.
func consoles(desc Description) []libvirtxml.DomainConsole {
	var all []libvirtxml.DomainConsole
	for _, s := range serials(desc) {
		all = append(all, libvirtxml.DomainConsole{
			Source: s.Source, Log: s.Log, Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: s.Target.Port},
		})
	}
	for i, path := range desc.TerminalSockets {
		port := uint(i + 1)
		all = append(all, libvirtxml.DomainConsole{
			Source: &libvirtxml.DomainChardevSource{
				UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path},
			},
			Target: &libvirtxml.DomainConsoleTarget{Type: "virtio", Port: &port},
		})
	}
	return all
}

// channels returns the ports of virtio-serial that are no consoles.
func channels(desc Description) []libvirtxml.DomainChannel {
	all := []libvirtxml.DomainChannel{agent(desc)}
	if desc.Spec.MetricsPort {
		all = append(all, libvirtxml.DomainChannel{
			Source: &libvirtxml.DomainChardevSource{
				UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: desc.MetricsSocket},
			},
			Target: &libvirtxml.DomainChannelTarget{
				VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: vhostmd.PortName},
			},
		})
	}
	return all
}

// vsock returns the device for sockets between the guest and the node.
func vsock(desc Description) *libvirtxml.DomainVSock {
	if desc.VSOCKCID == 0 {
		return nil
	}
	return &libvirtxml.DomainVSock{
		Model: virtioModel(desc.Spec),
		CID:   &libvirtxml.DomainVSockCID{Auto: "no", Address: strconv.FormatUint(uint64(desc.VSOCKCID), 10)},
	}
}

// serials returns the serial port of the console, unless the VM has none.
func serials(desc Description) []libvirtxml.DomainSerial {
	if desc.Spec.NoSerial {
		return nil
	}
	port := uint(0)
	return []libvirtxml.DomainSerial{{
		Source: &libvirtxml.DomainChardevSource{
			UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: desc.ConsoleSocket},
		},
		Log:    &libvirtxml.DomainChardevLog{File: desc.ConsoleLog, Append: "on"},
		Target: &libvirtxml.DomainSerialTarget{Port: &port},
	}}
}

// balloon returns the balloon device, which reports the guest's memory use and
// releases the pages that the guest frees. libvirt adds one by default, so the
// XML must say if there is none.
func balloon(desc Description) *libvirtxml.DomainMemBalloon {
	spec := desc.Spec
	if !spec.Balloon {
		return &libvirtxml.DomainMemBalloon{Model: "none"}
	}
	b := &libvirtxml.DomainMemBalloon{
		Model:             virtioModel(spec),
		FreePageReporting: "on",
		Stats:             &libvirtxml.DomainMemBalloonStats{Period: balloonPeriod},
	}
	vfio := slices.ContainsFunc(desc.HostDevices, func(d hostdevice.Device) bool { return d.Kind != hostdevice.USB })
	if spec.HugePage > 0 || vfio { // a guest frees smaller ones; VFIO locks all
		b.FreePageReporting = ""
	}
	return b
}

func rng(spec vmspec.Spec) []libvirtxml.DomainRNG {
	if !spec.RNG {
		return nil
	}
	return []libvirtxml.DomainRNG{{
		Model: virtioModel(spec),
		Backend: &libvirtxml.DomainRNGBackend{
			Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"},
		},
	}}
}
