package vmspec

import (
	"cmp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// attachment is a container that has a folder and a device.
func attachment() *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "attachment"},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/etc/hosts", HostPath: "/pods/a/etc-hosts"},
			{ContainerPath: "/volumes/files", HostPath: "/pods/a/files"},
			{ContainerPath: "/volumes/fixed", HostPath: "/pods/a/fixed", Readonly: true},
			{ContainerPath: "/volumes/tools", Image: &runtimeapi.ImageSpec{Image: "sha256:1"}, Readonly: true},
		},
		Devices: []*runtimeapi.Device{
			{ContainerPath: "/volumes/raw", HostPath: "/dev/pod-raw", Permissions: "mrw"},
			{ContainerPath: "/volumes/longer-than-the-serial", HostPath: "/dev/pod-long", Permissions: "mrw"},
		},
	}
}

func TestHotplug(t *testing.T) {
	stop := "stop"
	for text, want := range map[string]Disk{
		`{"name": "files"}`: {Name: "files", Host: "/pods/a/files", Serial: "files"},
		`{"name": "fixed"}`: {Name: "fixed", Host: "/pods/a/fixed", Serial: "fixed", ReadOnly: true},
		`{"name": "raw", "disk": {"bus": "scsi", "readonly": true}, "serial": "S1", "cache": "none"}`: {
			Name: "raw", Host: "/dev/pod-raw", Block: true, Serial: "S1", ReadOnly: true, Cache: "none",
		},
		`{"name": "raw", "serial": "a-serial-number-of-scsi"}`:      {Name: "raw", Host: "/dev/pod-raw", Block: true, Serial: "a-serial-number-of-scsi"},
		`{"name": "raw", "lun": {"bus": "scsi"}}`:                   {Name: "raw", Host: "/dev/pod-raw", Block: true, LUN: true},
		`{"name": "raw", "disk": {"bus": "virtio"}}`:                {Name: "raw", Host: "/dev/pod-raw", Block: true, Serial: "raw", Bus: BusVirtio},
		`{"name": "files", "cdrom": {"bus": "sata"}}`:               {Name: "files", Host: "/pods/a/files", Bus: BusSATA, CDROM: true, ReadOnly: true},
		`{"name": "raw", "cdrom": {"bus": "sata"}, "bootOrder": 1}`: {Name: "raw", Host: "/dev/pod-raw", Block: true, Bus: BusSATA, CDROM: true, ReadOnly: true},
		`{"name": "longer-than-the-serial", "disk": {"bus": "virtio"}}`: {
			Name: "longer-than-the-serial", Host: "/dev/pod-long", Block: true, Bus: BusVirtio,
		},
		`{"name": "raw", "shareable": true}`: {Name: "raw", Host: "/dev/pod-raw", Block: true, Serial: "raw", Shareable: true, Cache: "none"},
	} {
		want.Source, want.Bus, want.ErrorPolicy = SourcePVC, cmp.Or(want.Bus, BusSCSI), stop
		got, err := Hotplug([]byte(text), "", 0, false, attachment())
		assert.NilError(t, err, text)
		assert.DeepEqual(t, got, want)
	}
}

// TestHotplugImage: the guest can only read a registry disk that it gets while it runs.
func TestHotplugImage(t *testing.T) {
	for text, want := range map[string]Disk{
		`{"name": "tools", "disk": {"bus": "scsi", "readonly": true}}`:   {Serial: "tools", Bus: BusSCSI},
		`{"name": "tools", "disk": {"bus": "virtio", "readonly": true}}`: {Serial: "tools", Bus: BusVirtio},
		`{"name": "tools", "cdrom": {"bus": "sata"}}`:                    {Bus: BusSATA, CDROM: true},
	} {
		want.Name, want.Source, want.Image, want.Path, want.Mode = "tools", SourceVolume, "sha256:1", "a.iso", ModeFile
		want.ReadOnly, want.ErrorPolicy = true, "stop"
		got, err := Hotplug([]byte(text), "/disk/a.iso", 0, false, attachment())
		assert.NilError(t, err, text)
		assert.DeepEqual(t, got, want)
	}
	for text, want := range map[string]string{
		`{"name": "tools"}`: "spec.domain.devices.disks[0].disk: a registry disk that is added while the VM runs needs readonly: true",
		`{"name": "tools", "lun": {"bus": "scsi", "readonly": true}}`: "lun",
	} {
		_, err := Hotplug([]byte(text), "", 0, false, attachment())
		assert.ErrorContains(t, err, want)
	}
	_, err := Hotplug([]byte(`{"name": "tools", "cdrom": {"bus": "sata"}}`), "../a.iso", 0, false, attachment())
	assert.ErrorContains(t, err, "containerDisk.path")
}

func TestHotplugRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "other"}`:                                                  `disk "other": container attachment has no volume of this name; mount it at a path that ends in /other`,
		`{"name": "files", "disk": {"bus": "sata"}}`:                         "spec.domain.devices.disks[0].disk: a disk that is added while the VM runs needs bus scsi or virtio",
		`{"name": "files", "bootOrder": 1}`:                                  "bootOrder: goes with a disk that the VM starts with",
		`{"name": "files", "dedicatedIOThread": true}`:                       "dedicatedIOThread: goes with",
		`{"name": "files", "blockSize": {"matchVolume": {"enabled": true}}}`: "use custom",
		`{"name": "files", "lun": {"bus": "scsi"}}`:                          "needs a PVC of volumeMode Block",
		`{"name": "files", "serial": "a b"}`:                                 "serial",
		`{"name": "files", "colour": "red"}`:                                 "colour",
		`{"name": "files"}], "inputs": [{"name": "x"}`:                       "not JSON as expected",
		`null`: "there is no disk",
		`[]`:   "not JSON as expected",
		``:     "not JSON as expected",
	} {
		if _, err := Hotplug([]byte(text), "", 0, false, attachment()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// TestHotplugPreallocated: only what the guest writes there is preallocated.
func TestHotplugPreallocated(t *testing.T) {
	for text, want := range map[string]bool{
		`{"name": "raw"}`: true, `{"name": "files"}`: true, `{"name": "tools", "disk": {"bus": "scsi", "readonly": true}}`: false,
	} {
		d, err := Hotplug([]byte(text), "", 0, true, attachment())
		assert.NilError(t, err)
		assert.Equal(t, d.Preallocated, want, text)
	}
}

func TestHotplugMakesDisks(t *testing.T) {
	for _, tt := range []struct {
		text       string
		size, want int64
	}{{`{"name": "files"}`, 5*mebibyte + 1, 5 * mebibyte}, {`{"name": "files"}`, 1, 0}, {`{"name": "files"}`, -1, 0}} {
		d, err := Hotplug([]byte(tt.text), "", tt.size, false, attachment())
		assert.NilError(t, err)
		assert.Equal(t, d.Size, tt.want)
	}
	for _, text := range []string{`{"name": "raw"}`, `{"name": "fixed"}`} {
		if _, err := Hotplug([]byte(text), "", mebibyte, false, attachment()); err == nil || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
