package compat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"libvirt.org/go/libvirtxml"
)

// own is the target's domain, as the shim describes it. live is the source's, as libvirt
// returns it.
const (
	own = `<domain type="qemu">
  <name>vm</name>
  <os><type arch="x86_64" machine="q35">hvm</type></os>
  <cpu mode="host-model" check="partial"><topology sockets="1" dies="1" cores="2" threads="1"></topology></cpu>
  <devices>
    <disk type="file" device="disk">
      <source file="/target/disk" fdgroup="disk-0"></source><target dev="vda" bus="virtio"></target>
    </disk>
    <controller type="usb" model="none"></controller>
    <controller type="scsi" model="virtio-scsi"><driver iothread="1"></driver></controller>
    <interface type="ethernet"><mac address="02:00:00:00:00:0A"></mac><target dev="tap-target" managed="no"></target></interface>
    <rng model="virtio"><backend model="random">/dev/urandom</backend></rng>
    <memballoon model="virtio"></memballoon>
  </devices>
</domain>`
	live = `<domain type="qemu">
  <name>vm</name>
  <os><type arch="x86_64" machine="pc-q35-7.2">hvm</type></os>
  <cpu mode="custom" match="exact" check="full"><model fallback="forbid">EPYC-Rome</model><vendor>AMD</vendor>
    <topology sockets="9" dies="1" cores="9" threads="9"/><feature policy="require" name="x2apic"/><feature policy="disable" name="svm"/></cpu>
  <devices>
    <emulator>/hostile</emulator>
    <disk type="file" device="disk"><source file="/etc/shadow"/><target dev="vda" bus="virtio"/>
      <address type="pci" domain="0x0000" bus="0x03" slot="0x00" function="0x0"/></disk>
    <controller type="usb" index="0" model="none"/>
    <controller type="pci" index="0" model="pcie-root"/>
    <controller type="pci" index="1" model="pcie-root-port"><model name="pcie-root-port"/><target chassis="1" port="0x10"/>
      <address type="pci" domain="0x0000" bus="0x00" slot="0x02" function="0x0" multifunction="on"/></controller>
    <controller type="scsi" index="0" model="virtio-scsi"><address type="pci" domain="0x0000" bus="0x02" slot="0x00" function="0x0"/></controller>
    <controller type="sata" index="0"><address type="pci" domain="0x0000" bus="0x00" slot="0x1f" function="0x2"/></controller>
    <controller type="virtio-serial" index="0"><address type="pci" domain="0x0000" bus="0x07" slot="0x00" function="0x0"/></controller>
    <interface type="ethernet"><mac address="02:00:00:00:00:0a"/><target dev="tap-source"/>
      <address type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"/></interface>
    <rng model="virtio"><backend model="random">/dev/sda</backend><address type="pci" domain="0x0000" bus="0x06" slot="0x00" function="0x0"/></rng>
    <memballoon model="virtio"><address type="pci" domain="0x0000" bus="0x05" slot="0x00" function="0x0"/></memballoon>
  </devices>
</domain>`
)

func TestApply(t *testing.T) {
	data, err := Encode(live)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Apply(own, s)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, got, "applied.xml")
}

// TestHostileShapes has what Decode and Apply refuse.
func TestHostileShapes(t *testing.T) {
	data, err := Encode(live)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Shape){
		"an element":             func(s *Shape) { s.Machine = "q35'><kernel>/etc/shadow</kernel>" },
		"an option of QEMU's":    func(s *Shape) { s.Machine = "pc-q35-7.2,accel=kvm" },
		"another board":          func(s *Shape) { s.Machine = "pc-i440fx-7.2" },
		"no machine":             func(s *Shape) { s.Machine = "" },
		"host-model":             func(s *Shape) { s.CPU.Mode = "host-model" },
		"a CPU with an option":   func(s *Shape) { s.CPU.Model = "max,pmu=on" },
		"a policy":               func(s *Shape) { s.CPU.Features[0].Policy = "x" },
		"a feature":              func(s *Shape) { s.CPU.Features[0].Name = "a b" },
		"many features":          func(s *Shape) { s.CPU.Features = make([]Feature, maxFeatures+1) },
		"a controller's type":    func(s *Shape) { s.Controllers[0].Type = "xenbus" },
		"a controller's model":   func(s *Shape) { s.Controllers[0].Model = "vfio" },
		"a controller twice":     func(s *Shape) { s.Controllers[1] = s.Controllers[0] },
		"a high index":           func(s *Shape) { s.Controllers[0].Index = 256 },
		"a high chassis":         func(s *Shape) { s.Controllers[2].Chassis = 256 },
		"a high port":            func(s *Shape) { s.Controllers[2].Port = new(uint(256)) },
		"a controller's address": func(s *Shape) { s.Controllers[2].Address.Slot = 32 },
		"a high bus":             func(s *Shape) { s.Addresses["disk/vda"] = Address{Bus: 256} },
		"a high function":        func(s *Shape) { s.Addresses["disk/vda"] = Address{Function: 8} },
		"multifunction":          func(s *Shape) { s.Addresses["disk/vda"] = Address{MultiFunction: "yes"} },
		"a missing device":       func(s *Shape) { s.Addresses["disk/vdb"] = Address{} },
		"a NUMA node":            func(s *Shape) { s.NUMA = []Cell{{CPUs: "0,1", Memory: 1}} },
		"many NUMA nodes":        func(s *Shape) { s.NUMA = make([]Cell, maxCells+1) },
		"a host device":          func(s *Shape) { s.Addresses["hostdev/0"] = Address{} },
		"a path":                 func(s *Shape) { s.Addresses["disk/../../x"] = Address{} },
		"many devices":           func(s *Shape) { s.Controllers = make([]Controller, maxDevices+1) },
	} {
		var s Shape
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		changed, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = Decode(changed); err == nil {
			_, err = Apply(own, s)
		}
		if !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"nothing":       "",
		"no object":     "[]",
		"another field": `{"machine":"pc-q35-7.2","cpu":{"mode":"maximum"},"emulator":"/bin/sh"}`,
		"more":          string(data) + "{}",
		"too long":      strings.Repeat(" ", maxEncoded+1),
		"a negative":    `{"machine":"pc-q35-7.2","cpu":{"mode":"maximum"},"addresses":{"disk/vda":{"bus":-1}}}`,
	} {
		if _, err := Decode([]byte(text)); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "<domain/>", "<domain><os><type machine='q35'>hvm</type></os></domain>"} {
		if _, err := Encode(text); err == nil {
			t.Errorf("%q has a shape", text)
		}
	}
}

// TestGeneration: a guest keeps its VM generation ID, and one from an older version gets none.
func TestGeneration(t *testing.T) {
	const id, targets = "7d1c0f5a-6d5e-4d0e-8a4c-2f9d1b6a0001", "7d1c0f5a-6d5e-4d0e-8a4c-2f9d1b6a0002"
	with := func(text, id string) string {
		return strings.Replace(text, "<name>vm</name>", "<name>vm</name>\n  <genid>"+id+"</genid>", 1)
	}
	for name, tt := range map[string]struct{ source, target, want string }{
		"both":          {with(live, id), with(own, targets), id},
		"an old source": {live, with(own, targets), ""},
		"neither":       {live, own, ""},
	} {
		data, err := Encode(tt.source)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Apply(tt.target, s)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, "<genid") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	s, err := shapeOf(with(live, id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(own, s); !errors.Is(err, ErrShape) {
		t.Errorf("a target without: %v", err)
	}
	s.Generation = "x"
	if err := s.check(); !errors.Is(err, ErrShape) {
		t.Errorf("no ID: %v", err)
	}
}

// TestNUMA: the guest's NUMA nodes must be the same, however they are written, and the
// target's keep what is of its node.
func TestNUMA(t *testing.T) {
	with := func(text, cells string) string {
		return strings.Replace(text, "</topology></cpu>", "</topology><numa>"+cells+"</numa></cpu>", 1)
	}
	const source = `<cell id="0" cpus="0-1" memory="65536" unit="KiB"/><cell id="1" cpus="2" memory="1024" unit="KiB"/>`
	running := strings.Replace(live, "</cpu>", "<numa>"+source+"</numa></cpu>", 1)
	data, err := Encode(running)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for cells, same := range map[string]bool{
		`<cell id="0" cpus="0,1" memory="64" unit="MiB"/><cell id="1" cpus="2" memory="1" unit="MiB"/>`: true,
		`<cell id="0" cpus="0,2" memory="64" unit="MiB"/><cell id="1" cpus="1" memory="1" unit="MiB"/>`: false,
		`<cell id="0" cpus="0,1,2" memory="65" unit="MiB"/>`:                                            false,
		`<cell id="0" cpus="0,1" memory="64" unit="GiB"/><cell id="1" cpus="2" memory="1" unit="MiB"/>`: false,
		`<cell id="0" cpus="x" memory="64" unit="MiB"/>`:                                                false,
		`<cell id="0" cpus="0" memory="64" unit="TB"/>`:                                                 false,
		"": false,
	} {
		text, err := Apply(with(own, cells), s)
		if (err == nil) != same || err != nil && !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", cells, err)
		}
		if same && !strings.Contains(text, `cpus="0,1"`) {
			t.Errorf("the target's own cells are gone:\n%s", text)
		}
	}
}

// roomy is a domain with room for 3 vCPUs and 64 MiB more than the RAM that it has.
func roomy(text, vcpu, vcpus, memory, cell, devices string) string {
	text = strings.Replace(text, "<os>", `<maxMemory slots="16" unit="KiB">196608</maxMemory><memory unit="KiB">`+memory+`</memory>`+vcpu+vcpus+"<os>", 1)
	text = strings.Replace(text, "</cpu>", `<numa><cell id="0" cpus="0-2" memory="`+cell+`" unit="KiB"/></numa></cpu>`, 1)
	return strings.Replace(text, "</devices>", devices+"</devices>", 1)
}

// TestSize: the target gets what the guest has got since its start, up to what its pod is for.
func TestSize(t *testing.T) {
	running := roomy(live, `<vcpu current="2">3</vcpu>`, `<vcpus><vcpu id="0" enabled="yes" hotpluggable="no" order="1"/>
		<vcpu id="1" enabled="yes" hotpluggable="yes" order="2"/><vcpu id="2" enabled="no" hotpluggable="yes"/></vcpus>`, "131072", "65536",
		`<memory model="dimm"><target><size unit="KiB">65536</size><node>0</node></target><address type="dimm" slot="0" base="0x100000000"/></memory>`)
	data, err := Encode(running)
	if err != nil {
		t.Fatal(err)
	}
	target := roomy(own, `<vcpu current="2">3</vcpu>`, "", "131072", "131072", "")
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Apply(target, s)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, got, "sized.xml")

	for name, change := range map[string]func(*Size){
		"more vCPUs":           func(s *Size) { s.VCPUs[2], s.Online = VCPU{Online: true, Order: 3}, 3 },
		"other vCPUs":          func(s *Size) { s.VCPUs, s.Online = s.VCPUs[:2], 2 },
		"an order twice":       func(s *Size) { s.VCPUs[1].Order = 1 },
		"an order of none":     func(s *Size) { s.VCPUs[2].Order = 3 },
		"another number":       func(s *Size) { s.Online = 1 },
		"many vCPUs":           func(s *Size) { s.VCPUs = make([]VCPU, maxDevices+1) },
		"more memory":          func(s *Size) { s.Modules[0].Size++ },
		"memory that wraps":    func(s *Size) { s.Modules = append(s.Modules, Module{Size: 1<<64 - 65536, Slot: 1}) },
		"an empty module":      func(s *Size) { s.Modules[0].Size = 0 },
		"a slot twice":         func(s *Size) { s.Modules[0].Size /= 2; s.Modules = append(s.Modules, s.Modules[0]) },
		"a high slot":          func(s *Size) { s.Modules[0].Slot = maxModules },
		"a high address":       func(s *Size) { s.Modules[0].Base = 1 << 60 },
		"modules alone":        func(s *Size) { s.Boot = 0 },
		"much memory at start": func(s *Size) { s.Boot = 1 << 60 },
		"less at the start":    func(s *Size) { s.Boot = 32768 },
	} {
		var s Shape
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		change(s.Size)
		changed, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = Decode(changed); err == nil {
			_, err = Apply(target, s)
		}
		if !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, target := range map[string]string{
		"no room for vCPUs": roomy(own, `<vcpu>2</vcpu>`, "", "131072", "131072", ""),
		"no room at all":    own,
	} {
		if _, err := Apply(target, s); !errors.Is(err, ErrShape) {
			t.Errorf("a target with %s: %v", name, err)
		}
	}
}

// TestSizeOfTheStart: a guest that has got nothing yet moves to a pod that is for more.
func TestSizeOfTheStart(t *testing.T) {
	data, err := Encode(roomy(live, `<vcpu current="1">3</vcpu>`, "", "65536", "65536", ""))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Apply(roomy(own, `<vcpu current="2">3</vcpu>`, "", "131072", "131072", ""), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`<vcpu current="1">3</vcpu>`, `<memory unit="KiB">65536</memory>`, `cpus="0-2" memory="65536" unit="KiB"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
}

// FuzzShape checks that no shape changes anything of the target's domain but the machine,
// the CPU, controllers and PCI addresses.
func FuzzShape(f *testing.F) {
	data, err := Encode(live)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"machine":"pc-q35-9.1","cpu":{"mode":"maximum"},"addresses":{"disk/vda":{"bus":7,"slot":31,"function":7,"multifunction":"on"}}}`))
	want := rest(f, own)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		text, err := Apply(own, s)
		if err != nil {
			return
		}
		if diff := cmp.Diff(want, rest(t, text)); diff != "" {
			t.Error(diff)
		}
		if strings.Count(text, "<") > strings.Count(own, "<")+8*(len(s.Controllers)+len(s.Addresses)+len(s.CPU.Features)+4) {
			t.Errorf("elements from nowhere:\n%s", text)
		}
	})
}

// rest returns a domain without what a shape may change.
func rest(t testing.TB, text string) string {
	t.Helper()
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	d.OS.Type.Machine, d.CPU.Mode, d.CPU.Match, d.CPU.Check, d.CPU.Migratable, d.CPU.Vendor = "", "", "", "", "", ""
	d.CPU.Model, d.CPU.Features, d.Devices.Controllers = nil, nil, nil
	for _, at := range addresses(d.Devices) {
		if *at != nil && (*at).PCI == nil {
			t.Error("an address that is not of PCI")
		}
		*at = nil
	}
	out, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
