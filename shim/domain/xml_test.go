package domain

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// plainDomain is what a pod without any annotation gets.
func plainDomain() Description {
	return Description{
		Name: "nodevirt-0123456789ab", UUID: "8c2f2a35-1d0e-4f9c-9a54-2a3c4f0f7a10",
		ContainerID:  "0123456789abcdef",
		PodNamespace: "default", PodName: "web-0", ContainerName: "vm",
		Spec: vmspec.Spec{
			CPU:        vmspec.CPU{Sockets: 1, Cores: 2, Threads: 1},
			Memory:     1 << 30,
			Machine:    "q35",
			Disks:      []vmspec.Disk{{Name: "disk0", Bus: vmspec.BusVirtio, Target: "vda", BootOrder: 1}},
			Interfaces: []vmspec.Interface{{Name: "default", Model: "virtio"}},
			RNG:        true,
			Balloon:    true,
		},
		Accelerator: KVM,
		Emulator:    "/usr/bin/qemu-system-x86_64",
		UID:         64001, GID: 64002,
		Disks: []Disk{{Layers: []Layer{
			{Format: "qcow2", Path: "/run/vm/disk0.qcow2", FDGroup: "disk0-0"},
			{Format: "raw", Path: "/run/vm/image/disk.img", FDGroup: "disk0-1"},
		}}},
		NICs:          []NIC{{Name: "default", Tap: "tap0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MTU: 1400}},
		ConsoleSocket: "/run/vm/console.sock", ConsoleLog: "/run/vm/console.log",
	}
}

func tcgDomain() Description {
	m := plainDomain()
	m.Accelerator = TCG
	m.Spec.Memory = 64 << 20
	m.Spec.Board = vmspec.Board{PVSpinlock: new(true), EndOfInterrupt: true, Hyperv: &vmspec.Hyperv{Passthrough: true}}
	m.Spec.Clock = vmspec.Clock{Offset: -3600, Timers: []vmspec.Timer{{Name: vmspec.TimerHyperv}, {Name: vmspec.TimerKVM}}}
	return m
}

// maximumsDomain can get vCPUs and RAM while it runs.
func maximumsDomain() Description {
	m := plainDomain()
	m.Spec.CPU.MaxSockets, m.Spec.Memory, m.Spec.MaxMemory = 4, 3<<30, 4<<30
	return m
}

// filesystemsDomain has folders of the node.
func filesystemsDomain() Description {
	m := plainDomain()
	m.Spec.Filesystems = []vmspec.Filesystem{{Name: "data", Host: "/srv/data"}, {Name: "config", Host: "/config", ReadOnly: true}}
	m.FilesystemSockets = []string{"/run/vm/0.sock", "/run/vm/1.sock"}
	return m
}

// richDomain uses what a spec can say.
func richDomain() Description {
	m := plainDomain()
	raw := func(path, group string, readOnly bool) Disk {
		return Disk{Layers: []Layer{{Format: "raw", Path: path, FDGroup: group, ReadOnly: readOnly}}}
	}
	m.Spec.CPU = vmspec.CPU{Sockets: 2, Cores: 2, Threads: 2, Model: "Nehalem", Features: []vmspec.CPUFeature{
		{Name: "aes", Policy: "require"}, {Name: "vmx", Policy: "disable"},
	}}
	m.Spec.Display, m.DisplaySocket = true, "/run/vm/display/vnc"
	m.VSOCKCID = 64001
	m.Spec.MetricsPort, m.MetricsSocket = true, "/run/vm/metrics.sock"
	m.Spec.USBRedirection, m.USBSockets = true, []string{"/run/vm/a.usb0", "/run/vm/a.usb1"}
	m.Spec.Inputs = []vmspec.Input{{Name: "pen", Bus: "virtio"}, {Name: "default-0", Bus: "usb"}}
	m.Spec.Watchdog = vmspec.WatchdogPoweroff
	m.Spec.Video, m.Spec.Sound, m.Spec.HypervPanic = "virtio", "ich9", true
	m.Spec.Interfaces[0].ACPIIndex, m.Spec.Interfaces[0].Unplugged = 7, true
	m.Spec.Disks[0].PCI, m.Spec.Interfaces[0].PCI = "0000:02:00.0", "0000:01:00.0"
	m.Spec.Firmware = vmspec.Firmware{
		UUID: "11111111-2222-4333-8444-555555555555", Serial: "SN-1",
		Kernel: &vmspec.Kernel{Path: "/boot/vmlinuz", Initrd: "/boot/initrd", Args: "console=ttyS0"},
	}
	m.Kernel, m.Initrd = "/run/vm/kernel", "/run/vm/initrd"
	m.Spec.Disks = append(m.Spec.Disks,
		vmspec.Disk{Name: "seed", Bus: vmspec.BusSATA, CDROM: true, Tray: "open", BootOrder: 2},
		vmspec.Disk{Name: "drive", Source: vmspec.SourceDrive, Bus: vmspec.BusSATA, CDROM: true},
		vmspec.Disk{Name: "data", Bus: vmspec.BusSCSI, Serial: "D-1", Cache: "none", IO: "native", ErrorPolicy: "enospace"},
		vmspec.Disk{Name: "fixed", Bus: vmspec.BusVirtio, ReadOnly: true},
		vmspec.Disk{Name: "claim", Bus: vmspec.BusVirtio, Preallocated: true},
		vmspec.Disk{Name: "remote", Bus: vmspec.BusVirtio},
		vmspec.Disk{Name: "san", Bus: vmspec.BusSCSI, LUN: true},
		vmspec.Disk{Name: "ephemeral", Bus: vmspec.BusVirtio, IOThread: 2, BlockSize: vmspec.BlockSize{Logical: 512, Physical: 4096}},
		vmspec.Disk{Name: "pristine", Bus: vmspec.BusVirtio, IOThread: 1},
		vmspec.Disk{Name: "host", Bus: vmspec.BusVirtio, IOThread: 1, Queues: 8},
		vmspec.Disk{Name: "shared", Bus: vmspec.BusVirtio, Cache: "none", Shareable: true, IOThread: 1},
		vmspec.Disk{Name: "long", Bus: vmspec.BusVirtio},
	)
	m.Spec.IOThreads = 2
	for i, target := range vmspec.Targets(m.Spec.Disks) {
		m.Spec.Disks[i].Target = target
	}
	m.Disks = append(m.Disks,
		raw("/run/vm/seed.iso", "seed-0", true),
		Disk{},
		raw("/run/vm/data.raw", "data-0", false),
		raw("/run/vm/fixed.raw", "", false),
		Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/claim", Block: true}}},
		Disk{Layers: []Layer{{Format: "raw", ISCSI: &ISCSI{
			Portal: netip.MustParseAddrPort("127.0.0.1:3260"), Target: "iqn.2026-11.io.nodevirt:a", LUN: 1,
			Initiator: "iqn.2026-11.io.nodevirt:by.b", User: "user", Secret: "66666666-2222-4333-8444-555555555555",
		}}}},
		Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/san", Block: true}}},
		Disk{Layers: []Layer{{Format: "qcow2", Path: "/run/vm/disk-ephemeral.qcow2", FDGroup: "ephemeral-top"}, {Format: "raw", Path: "/run/vm/golden", Block: true, ReadOnly: true}}},
		Disk{Layers: []Layer{
			{Format: "qcow2", Path: "/run/vm/disk-pristine.qcow2", FDGroup: "pristine-top"},
			{Format: "raw", Path: "/srv/pvc/disk.img", FDGroup: "pristine-base", ReadOnly: true},
		}},
		raw("/var/data/host.img", "host-top", false),
		Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/shared", Block: true}}},
		Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/long", Block: true, Length: 512 << 20}}},
	)
	m.Spec.Interfaces[0].Model = "e1000e"
	m.Spec.RNG, m.Spec.Balloon, m.Spec.EndOnReboot = false, false, true
	m.Spec.Board = vmspec.Board{HideKVM: true, EndOfInterrupt: true, PVSpinlock: new(false), Hyperv: &vmspec.Hyperv{
		Relaxed: true, VAPIC: true, VPIndex: true, Runtime: true, SyNIC: true, SyNICTimer: true, DirectTimer: true, Reset: true,
		Frequencies: true, Reenlightenment: true, TLBFlush: true, IPI: true, EVMCS: true, Retries: 8191, VendorID: "Contoso 1",
	}}
	m.Spec.Clock = vmspec.Clock{Timezone: "Europe/Berlin", Timers: []vmspec.Timer{
		{Name: vmspec.TimerRTC, TickPolicy: "delay", Track: "guest"}, {Name: vmspec.TimerPIT, Absent: true},
		{Name: vmspec.TimerHPET}, {Name: vmspec.TimerHyperv}, {Name: vmspec.TimerKVM, Absent: true},
	}}
	return m
}

// strangeDomain has, wherever an author writes text freely, text that means
// something to XML, to QEMU's options or to a shell.
func strangeDomain() Description {
	m := plainDomain()
	const strange = `"'/><x a="1">]]>&lt;,file=/etc/shadow $(id)` + "\x01\n"
	m.PodName, m.ContainerName = strange, strange
	m.Spec.Firmware = vmspec.Firmware{Serial: strange, Kernel: &vmspec.Kernel{Path: "/k", Args: strange}}
	m.Kernel = "/run/vm/kernel"
	m.Spec.CPU.Model = strange
	m.Spec.Disks[0].Serial = strange
	return m
}

// bareDomain has neither a console nor a power button.
func bareDomain() Description {
	m := plainDomain()
	m.Spec.NoSerial, m.Spec.NoACPI, m.Spec.NoHotplug = true, true, true
	m.TerminalSockets = []string{"/run/vm/hvc0", "/run/vm/hvc1"}
	m.Spec.Memory = 1 << 20
	return m
}

// networkDomain has no disk, and boots from its second card.
func networkDomain() Description {
	m := plainDomain()
	m.Spec.Disks, m.Disks = nil, nil
	m.Spec.Interfaces = append(m.Spec.Interfaces, vmspec.Interface{Name: "boot", Model: "virtio", BootOrder: 1})
	m.NICs = append([]NIC{{Name: "boot", Tap: "tap1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}}, m.NICs...)
	return m
}

// uefiDomain boots by UEFI, with secure boot or without, and has a TPM.
func uefiDomain(secure bool) Description {
	m := plainDomain()
	m.Spec.Firmware.UEFI, m.Spec.SMM, m.Spec.TPM = &vmspec.UEFI{SecureBoot: secure}, secure, true
	m.UEFI = &uefi.Firmware{Code: "/usr/share/OVMF/OVMF_CODE_4M.fd", Variables: "/usr/share/OVMF/OVMF_VARS_4M.fd", SMM: secure}
	if secure {
		m.UEFI.Code = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd"
	}
	m.UEFIVariables, m.TPMSocket = "/run/vm/uefi-variables", "/run/vm/tpm/socket"
	return m
}

// encryptedDomain has devices of virtio, which reach no encrypted memory.
func encryptedDomain(l vmspec.LaunchSecurity) Description {
	m := uefiDomain(false)
	m.Spec.LaunchSecurity, m.Spec.TPM = &l, false
	m.Encryption = Encryption{SEV: true, SEVES: true, SNP: true, TDX: true, CBitPos: 51, ReducedPhysBits: 1}
	if l.Encryption != vmspec.EncryptionSEV {
		m.UEFI, m.UEFIVariables = &uefi.Firmware{Code: "/usr/share/edk2/ovmf/OVMF.stateless.fd"}, ""
	}
	m.Spec.Disks = append(m.Spec.Disks, vmspec.Disk{Name: "data", Bus: vmspec.BusSCSI, Target: "sda"}, vmspec.Disk{Name: "old", Bus: vmspec.BusSATA, Target: "sdb"})
	for _, name := range []string{"data", "old"} {
		m.Disks = append(m.Disks, Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/" + name, FDGroup: name}}})
	}
	m.Spec.Interfaces = append(m.Spec.Interfaces, vmspec.Interface{Name: "old", Model: "e1000e"})
	m.NICs = append(m.NICs, NIC{Name: "old", Tap: "tap1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}})
	m.Spec.Interfaces[0].Queues = 2
	m.Spec.Inputs = []vmspec.Input{{Name: "pen", Bus: "virtio"}, {Name: "mouse", Bus: "usb"}}
	m.Spec.Display, m.Spec.Video, m.DisplaySocket = true, "virtio", "/run/vm/display/vnc"
	m.VSOCKCID = 64001
	return m
}

func sevDomain() Description {
	return encryptedDomain(vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSEV, EncryptedState: true, DHCert: "ZGg=", Session: "c2Vzc2lvbg=="})
}

// TestLaunchSecurity: the elements as libvirt documents them, whatever the library's tags say.
func TestLaunchSecurity(t *testing.T) {
	for want, l := range map[string]vmspec.LaunchSecurity{
		`type="sev"><cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits><policy>0x0001</policy><dhCert></dhCert><session></session>`:                 {Encryption: vmspec.EncryptionSEV},
		`type="sev"><cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits><policy>0x0005</policy><dhCert>ZGg=</dhCert><session>c2Vzc2lvbg==</session>`: *sevDomain().Spec.LaunchSecurity,
	} {
		text, err := XML(encryptedDomain(l))
		if err != nil {
			t.Fatal(err)
		}
		if want = "<launchSecurity " + want + "</launchSecurity>"; !strings.Contains(flat(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// flat removes the space between elements.
func flat(text string) string { return regexp.MustCompile(`>\s+<`).ReplaceAllString(text, "><") }

// armDomain is a guest of arm64, with a display.
func armDomain(a Accelerator) Description {
	m := uefiDomain(false)
	m.Spec.Architecture, m.Spec.Machine, m.Accelerator = vmspec.ARM64, "virt", a
	m.Emulator = "/usr/bin/qemu-system-aarch64"
	m.UEFI = &uefi.Firmware{Code: "/usr/share/AAVMF/AAVMF_CODE.fd", Variables: "/usr/share/AAVMF/AAVMF_VARS.fd"}
	m.Spec.Firmware.Board = &vmspec.BoardText{Manufacturer: "KubeVirt", Product: "None", Family: "KubeVirt"}
	m.Spec.Display, m.DisplaySocket = true, "/run/vm/display/vnc"
	m.Spec.Disks = append(m.Spec.Disks, vmspec.Disk{Name: "seed", Bus: vmspec.BusSCSI, CDROM: true, Target: "sda"})
	m.Disks = append(m.Disks, Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/seed.iso", FDGroup: "seed-0", ReadOnly: true}}})
	return m
}

// licensedDomain has ACPI tables, a chassis, and no UEFI.
func licensedDomain() Description {
	m := plainDomain()
	m.Ignition = "/run/vm/ignition"
	m.ACPITables = []ACPITable{{"SLIC", "/run/vm/acpi-SLIC"}, {"MSDM", "/run/v,m/acpi-MSDM"}}
	m.Spec.Chassis = vmspec.Chassis{Manufacturer: "ACME & <Co>", Version: "1", Serial: "C-1", Asset: "A-1", SKU: "S-1"}
	m.Spec.SMM = true
	m.Spec.Firmware.Board, m.Spec.Firmware.OnSerial = &vmspec.BoardText{Manufacturer: "KubeVirt", Product: "None", Family: "KubeVirt"}, true
	return m
}

// hugeDomain has huge pages, of which virtiofsd reads requests if the VM has file systems.
func hugeDomain(page int64, filesystems bool) Description {
	m := plainDomain()
	if filesystems {
		m = filesystemsDomain()
	}
	m.Spec.HugePage = page
	return m
}

// dedicatedDomain has processors for itself, on two NUMA nodes.
func dedicatedDomain() Description {
	m := plainDomain()
	m.CPUSet, m.NodeCPUs = "2-7", nodeCPUs()
	m.Spec.CPU = vmspec.CPU{Sockets: 1, Cores: 2, Threads: 2, Dedicated: true, IsolateEmulator: true}
	m.Spec.IOThreads, m.Spec.IOThreadPool, m.Spec.Disks[0].IOThread = 1, true, 1
	return m
}

// realtimeDomain sees the node's NUMA nodes.
func realtimeDomain() Description {
	m := dedicatedDomain()
	m.Spec.CPU.NUMA, m.Spec.CPU.Realtime, m.Spec.HugePage, m.Spec.Memory = true, "0-2,^1", 2<<20, 1<<30+2<<20
	m.Spec.CPU.IsolateEmulator, m.Spec.IOThreadPool = false, false
	m.CPUSet = "0,2,4,5"
	m.Spec.CPU.Threads, m.Spec.CPU.Cores = 1, 4
	return m
}

// nodeCPUs are two NUMA nodes with two cores each, of two threads.
func nodeCPUs() []hostcpu.CPU {
	return []hostcpu.CPU{
		{ID: 0, Core: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2, Node: 1}, {ID: 3, Core: 3, Node: 1},
		{ID: 4, Core: 0}, {ID: 5, Core: 1}, {ID: 6, Core: 2, Node: 1}, {ID: 7, Core: 3, Node: 1},
	}
}

// TestNoPorts: a board without PCI Express has no ports.
func TestNoPorts(t *testing.T) {
	for machine, want := range map[string]bool{"pc": false, "pc-i440fx-7.2": false, "q35": true, "pc-q35-7.2": true} {
		m := plainDomain()
		m.Spec.Machine = machine
		text, err := XML(m)
		if err != nil || strings.Contains(text, "pcie-root-port") != want {
			t.Errorf("%s: %v\n%s", machine, err, text)
		}
	}
}

// TestBridgedCard: the bus of an address that a port does not have is a bridge's.
func TestBridgedCard(t *testing.T) {
	m := plainDomain()
	m.Spec.Interfaces = slices.Clone(m.Spec.Interfaces)
	m.Spec.Interfaces[0].PCI = "0000:02:01.0"
	text, err := XML(m)
	if err != nil || strings.Count(text, "pcie-to-pci-bridge") != 1 ||
		!strings.Contains(text, `<controller type="pci" index="2" model="pcie-to-pci-bridge">`) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestPins(t *testing.T) {
	for name, tt := range map[string]struct {
		cpuset                  string
		cores, threads, pool    uint32
		isolate, numa           bool
		iothreads               uint32
		want, emulator, ioPlace string
	}{
		"whole cores":             {cpuset: "2-7", cores: 2, threads: 2, want: "2,6,3,7"},
		"part of a core":          {cpuset: "1,4,5", cores: 1, threads: 2, want: "1,5"},
		"a core of two":           {cpuset: "0,1", cores: 1, threads: 2, want: "0,1"},
		"across NUMA nodes":       {cpuset: "0,2", cores: 1, threads: 2, want: "0,2"},
		"not across NUMA nodes":   {cpuset: "0,2", cores: 1, threads: 2, numa: true, want: "on two NUMA nodes"},
		"too few":                 {cpuset: "0-3", cores: 4, threads: 1, isolate: true, want: "needs 5"},
		"none":                    {cores: 1, threads: 1, want: "needs 1"},
		"bad":                     {cpuset: "a", cores: 1, threads: 1, want: "not the number"},
		"isolated, with a thread": {cpuset: "0-2", cores: 2, threads: 1, isolate: true, iothreads: 2, want: "0,1", emulator: "2", ioPlace: "2 2"},
		"pool":                    {cpuset: "0-3,6", cores: 2, threads: 1, isolate: true, pool: 2, want: "0,1", emulator: "3", ioPlace: "2 6"},
		"shared threads":          {cpuset: "0-3", cores: 4, threads: 1, iothreads: 3, want: "0,1,2,3", ioPlace: "0,3 1 2"},
		"more threads than CPUs":  {cpuset: "0-1", cores: 2, threads: 1, iothreads: 3, want: "0,1", ioPlace: "0 1 0"},
	} {
		m := plainDomain()
		m.CPUSet, m.NodeCPUs = tt.cpuset, nodeCPUs()
		m.Spec.CPU = vmspec.CPU{Sockets: 1, Cores: tt.cores, Threads: tt.threads, Dedicated: true, IsolateEmulator: tt.isolate, NUMA: tt.numa}
		m.Spec.IOThreads, m.Spec.IOThreadPool = tt.iothreads+tt.pool, tt.pool > 0
		p, err := PinsOf(m)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var vcpus []int
		for _, c := range p.VCPUs {
			vcpus = append(vcpus, c.ID)
		}
		var threads []string
		for _, cpus := range p.IOThreads {
			threads = append(threads, hostcpu.Format(cpus))
		}
		got := []string{hostcpu.Format(vcpus), hostcpu.Format(p.Emulator), strings.Join(threads, " ")}
		if want := []string{tt.want, tt.emulator, tt.ioPlace}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// transitionalDomain is for a guest with old virtio drivers.
func transitionalDomain() Description {
	m := plainDomain()
	m.Spec.Transitional = true
	m.Spec.Interfaces[0].Model = "virtio-transitional"
	m.Spec.Disks = append(m.Spec.Disks, vmspec.Disk{Name: "data", Bus: vmspec.BusSCSI, Target: "sda"})
	m.Disks = append(m.Disks, Disk{Layers: []Layer{{Format: "raw", Path: "/run/vm/data.raw", FDGroup: "data-0"}}})
	return m
}

// netdiskDomain has the network disks of PVCs. The first is that of KubeVirt's first
// proposal of such disks.
func netdiskDomain() Description {
	m := plainDomain()
	m.Spec.Disks = nil
	for i, name := range []string{"proposal", "chap", "lun", "rbd"} {
		m.Spec.Disks = append(m.Spec.Disks, vmspec.Disk{Name: name, Bus: vmspec.BusSCSI, LUN: name == "lun", Target: "sd" + string(rune('a'+i))})
	}
	raw := func(l Layer) Disk {
		l.Format = "raw"
		return Disk{ErrorPolicy: "stop", Layers: []Layer{l}}
	}
	target := ISCSI{Portal: netip.MustParseAddrPort("10.0.2.15:3260"), Target: "iqn.2013-07.com.example:iscsi-nopool", LUN: 2}
	chap, lun := target, target
	chap.LUN, chap.User, chap.Secret = 3, "user", "66666666-2222-4333-8444-555555555555"
	lun.Portal, lun.LUN, lun.Initiator = netip.MustParseAddrPort("[fd00::1]:3260"), 0, "iqn.2026-11.com.example:node"
	m.Disks = []Disk{raw(Layer{ISCSI: &target}), raw(Layer{ISCSI: &chap}), raw(Layer{ISCSI: &lun}), raw(Layer{ReadOnly: true, RBD: &RBD{
		Monitors: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:3300"), netip.MustParseAddrPort("[fd00::2]:3300")},
		Pool:     "vms", Image: "disk", User: "nodevirt", Secret: "77777777-2222-4333-8444-555555555555", Config: "/run/vm/ceph.conf",
	}})}
	return m
}

// hostdevDomain has devices of the node: each kind of VFIO's and of USB, and a network card that boots.
func hostdevDomain() Description {
	m := plainDomain()
	m.Spec.Display, m.DisplaySocket = true, "/run/vm/display/vnc"
	m.Spec.HostDevices = []vmspec.HostDevice{
		{Kind: vmspec.HostDeviceGPU, Name: "gpu1", Resource: "nvidia.com/TU104"},
		{Kind: vmspec.HostDeviceGPU, Name: "vgpu", Resource: "nvidia.com/GRID_T4-1Q"},
		{Kind: vmspec.HostDeviceGPU, Name: "vgpu2", Resource: "nvidia.com/GRID_T4-1Q"},
		{Kind: vmspec.HostDeviceGeneric, Name: "node-usb-to-vmi-storage", Resource: "kubevirt.io/storage"},
		{Kind: vmspec.HostDeviceSRIOV, Name: "sriov-net", Network: "net1", PCI: "0000:05:00.0", BootOrder: 2},
	}
	m.HostDevices = []hostdevice.Device{
		{Kind: hostdevice.PCI, Address: "0000:65:00.0", Node: "/dev/vfio/12"},
		{Kind: hostdevice.MDev, Address: "4b20d080-1b54-4048-85b3-a6a62d165c01", Node: "/dev/vfio/15"},
		{Kind: hostdevice.MDev, Address: "4b20d080-1b54-4048-85b3-a6a62d165c02", Node: "/dev/vfio/16"},
		{Kind: hostdevice.USB, Address: "1:4", Node: "/dev/bus/usb/001/004"},
		{Kind: hostdevice.PCI, Address: "0000:3b:02.1", Node: "/dev/vfio/13"},
	}
	return m
}

// TestPictures: which GPUs show a picture, by what their author says.
func TestPictures(t *testing.T) {
	for name, tt := range map[string]struct {
		noDisplay    bool
		first, other *vmspec.Picture
		want         []shows
	}{
		"nothing said":   {want: []shows{{}, {"on", "on"}, {}}},
		"no display":     {noDisplay: true, other: &vmspec.Picture{Enabled: true}, want: []shows{{}, {}, {}}},
		"the second one": {other: &vmspec.Picture{Enabled: true}, want: []shows{{}, {}, {display: "on"}}},
		"both":           {first: &vmspec.Picture{Enabled: true, RAMFB: true}, other: &vmspec.Picture{Enabled: true}, want: []shows{{}, {"on", "on"}, {display: "on"}}},
		"none":           {first: new(vmspec.Picture), want: []shows{{}, {}, {}}},
	} {
		m := hostdevDomain()
		m.Spec.Display = !tt.noDisplay
		m.Spec.HostDevices, m.HostDevices = m.Spec.HostDevices[:3], m.HostDevices[:3]
		m.Spec.HostDevices[1].Picture, m.Spec.HostDevices[2].Picture = tt.first, tt.other
		if got := pictures(m); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestSecrets: libvirtd distinguishes the two kinds by their usage.
func TestSecrets(t *testing.T) {
	for kind, want := range map[SecretKind]string{
		SecretISCSI: "<usage type=\"iscsi\">\n    <target>vm/disk</target>",
		SecretCeph:  "<usage type=\"ceph\">\n    <name>vm/disk</name>",
	} {
		got, err := Secret{UUID: "u", Usage: "vm/disk", Kind: kind}.xml()
		if err != nil || !strings.Contains(got, want) || !strings.Contains(got, `ephemeral="yes" private="yes"`) {
			t.Errorf("%s: %v", got, err)
		}
	}
}

func TestXML(t *testing.T) {
	for name, m := range map[string]Description{
		"uefi":        uefiDomain(false),
		"secure-boot": uefiDomain(true),
		"arm64":       armDomain(TCG),
		"arm64-kvm":   armDomain(KVM),
		"licensed":    licensedDomain(),
		"plain":       plainDomain(),
		"tcg":         tcgDomain(),
		"rich":        richDomain(),
		"strange":     strangeDomain(),
		"network":     networkDomain(),
		"bare":        bareDomain(),
		"netdisk":     netdiskDomain(),
		"filesystems": filesystemsDomain(),

		"transitional": transitionalDomain(),
		"huge-2Mi":     hugeDomain(2<<20, false),
		"huge-1Gi":     hugeDomain(1<<30, true),
		"dedicated":    dedicatedDomain(),
		"realtime":     realtimeDomain(),
		"maximums":     maximumsDomain(),
		"hostdev":      hostdevDomain(),
		"usb":          usbDomain(),
		"plugged":      pluggedDomain(),
		"sev":          sevDomain(),
		"sev-snp":      encryptedDomain(vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSNP}),
		"tdx":          encryptedDomain(vmspec.LaunchSecurity{Encryption: vmspec.EncryptionTDX}),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := XML(m)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, got+"\n", name+".xml")
		})
	}
}

// TestFlushes: the elements as libvirt documents them from version 11.0 on. The schema of former ones does
// not have them.
func TestFlushes(t *testing.T) {
	m := plainDomain()
	m.Spec.Board.Hyperv = &vmspec.Hyperv{TLBFlush: true, DirectFlush: true, ExtendedFlush: true}
	text, err := XML(m)
	if err != nil {
		t.Fatal(err)
	}
	const want = `<tlbflush state="on"><direct state="on"></direct><extended state="on"></extended></tlbflush>`
	if !strings.Contains(flat(text), want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}

// TestXMLIsValid has libvirtd check what XML makes against its schema. It
// knows no KVM here, so that KVM's machines are shown to it as emulated ones.
func TestXMLIsValid(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	for name, m := range map[string]Description{
		"plain": plainDomain(), "tcg": tcgDomain(), "rich": richDomain(), "network": networkDomain(), "bare": bareDomain(),
		"arm64": armDomain(TCG), "uefi": uefiDomain(false), "secure-boot": uefiDomain(true), "licensed": licensedDomain(),
		"netdisk": netdiskDomain(), "filesystems": filesystemsDomain(), "transitional": transitionalDomain(),
		"huge-2Mi": hugeDomain(2<<20, false), "huge-1Gi": hugeDomain(1<<30, true),
		"dedicated": dedicatedDomain(), "realtime": realtimeDomain(), "maximums": maximumsDomain(), "hostdev": hostdevDomain(), "sev": sevDomain(), "usb": usbDomain(),
	} {
		// Each has its own name and UUID here.
		m.Name, m.UUID = name, uuid.NewString()
		text, err := XML(m)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, "type=\"kvm\"", "type=\"qemu\"", 1)
		text = strings.Replace(text, "mode=\"host-passthrough\"", "mode=\"maximum\"", 1)
		path := filepath.Join(t.TempDir(), name+".xml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "virsh", "-c", testURI, "define", "--validate", path)
		// libvirt checks the schema before it looks whether the processor can encrypt memory.
		if out, err := cmd.CombinedOutput(); err != nil && !noSEV.Match(out) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if err := d.Lifecycle.Undefine(t.Context(), m.UUID); err != nil {
			t.Error(err)
		}
	}
}

// noSEV is what libvirt writes without such a processor, in the words of 9 and 11.
var noSEV = regexp.MustCompile(`(SEV|'sev') launch security is not supported with this QEMU`)

func TestXMLRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Description){
		"accelerator":                  func(m *Description) { m.Accelerator = "auto" },
		"0 disks for 1":                func(m *Description) { m.Disks = nil },
		"disk disk0 has no content":    func(m *Description) { m.Disks[0].Layers = nil },
		"disk disk0: \"\" is not":      func(m *Description) { m.Spec.Disks[0].Target = "" },
		"0 host devices for 1":         func(m *Description) { m.Spec.HostDevices = []vmspec.HostDevice{{Name: "gpu"}} },
		"0 network cards for 1":        func(m *Description) { m.NICs = nil },
		"1 sockets for 0 file systems": func(m *Description) { m.FilesystemSockets = []string{"/run/vm/0.sock"} },
		"network card default":         func(m *Description) { m.NICs[0].Name = "other" },
		"firmware UUID \"-smp 9\"":     func(m *Description) { m.Spec.Firmware.UUID = "-smp 9" },
		"memory of 0 bytes":            func(m *Description) { m.Spec.Memory = 0 },
	} {
		m := plainDomain()
		spoil(&m)
		if _, err := XML(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
