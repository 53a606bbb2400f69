package vmspec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestWithDevices(t *testing.T) {
	devices := []vmspec.TaggedDevice{
		{Type: vmspec.DeviceNIC, Bus: "pci", Address: "0000:01:00.0", MAC: "02:00:00:aa:bb:01", Tags: []string{"lan"}},
		{Type: vmspec.DeviceDisk, Bus: "scsi", Address: "0:0:0:1", Serial: "s-1", Tags: []string{"scratch"}},
		{Type: vmspec.DeviceHost, Bus: "pci", Address: "0000:09:00.0", Tags: []string{"cuda"}},
	}
	const list = `[{"type":"nic","bus":"pci","address":"0000:01:00.0","mac":"02:00:00:aa:bb:01","tags":["lan"]},` +
		`{"type":"disk","bus":"scsi","address":"0:0:0:1","serial":"s-1","tags":["scratch"]},` +
		`{"type":"hostdev","bus":"pci","address":"0000:09:00.0","tags":["cuda"]}]`
	for _, tt := range []struct{ metaData, want string }{
		{`{"hostname":"a<b>","n":12345678901234567890,"uuid":"u"}` + "\n", `{"devices":` + list + `,"hostname":"a<b>","n":12345678901234567890,"uuid":"u"}`},
		{`{"devices":"the author's"}`, `{"devices":` + list + `}`},
		{"{}", `{"devices":` + list + `}`},
	} {
		room := vmspec.WithRoom(tt.metaData, len(devices))
		got, err := vmspec.WithDevices([]byte(room), devices)
		if err != nil || strings.TrimRight(string(got), " \n") != tt.want || len(got) != len(room) {
			t.Errorf("%s: %d bytes of %d: %s, %v", tt.metaData, len(got), len(room), got, err)
			continue
		}
		again, err := vmspec.WithDevices(got, devices)
		if err != nil || string(again) != string(got) {
			t.Errorf("a second time: %s, %v", again, err)
		}
	}
	if got := vmspec.WithRoom("{}", 0); got != "{}" {
		t.Errorf("no devices: %q", got)
	}
	for text, words := range map[string]string{"{}\n": "no room for the tags of 3 devices", "[": "meta data"} {
		if got, err := vmspec.WithDevices([]byte(text), devices); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// TestRoomForDevices: there is room for as many devices as have tags, however long their texts are.
func TestRoomForDevices(t *testing.T) {
	one := vmspec.TaggedDevice{
		Type: vmspec.DeviceHost, Bus: "pci", Address: "4294967295:4294967295:4294967295:4294967295", MAC: "02:00:00:aa:bb:01",
		Serial: strings.Repeat("s", 36), Tags: []string{strings.Repeat("t", 63)},
	}
	for n := 1; n <= 100; n++ {
		devices := make([]vmspec.TaggedDevice, n)
		for i := range devices {
			devices[i] = one
		}
		got, err := vmspec.WithDevices([]byte(vmspec.WithRoom("{}", n)), devices)
		if err != nil || !json.Valid(got) {
			t.Errorf("%d devices: %v", n, err)
		}
	}
}

func TestTagged(t *testing.T) {
	s := vmspec.Spec{
		Disks:       []vmspec.Disk{{Tag: "a"}, {}, {Source: vmspec.SourceSeed}},
		Interfaces:  []vmspec.Interface{{Tag: "b"}, {}},
		HostDevices: []vmspec.HostDevice{{Tag: "c"}, {Tag: "d"}, {}},
	}
	if n := vmspec.Tagged(s); n != 0 {
		t.Errorf("%d tags without a config drive", n)
	}
	s.Disks[2].Source = vmspec.SourceConfigDrive
	if n := vmspec.Tagged(s); n != 4 {
		t.Errorf("%d tags, want 4", n)
	}
}
