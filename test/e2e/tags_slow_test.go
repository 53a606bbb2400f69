//go:build slow

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// taggedDevice is a device in the meta data of a config drive.
type taggedDevice struct {
	Type, Bus, Address, MAC, Serial string
	Tags                            []string
}

// showMetaData shows the meta data of the config drive, which the guest finds by the disk's content.
const showMetaData = `mkdir -p /drive
for disk in /dev/vd?; do
	mount -o ro -t iso9660 $disk /drive 2>/dev/null || continue
	[ -f /drive/openstack/latest/meta_data.json ] && cat /drive/openstack/latest/meta_data.json
	umount /drive
done
`

// tags reads the config drive in the guest, and returns the devices by their tags.
func (c *container) tags() map[string]taggedDevice {
	c.t.Helper()
	text := c.runs(showMetaData)
	var meta struct {
		Devices []taggedDevice
		Zone    string
	}
	assert.NilError(c.t, json.Unmarshal([]byte(text), &meta), text)
	assert.Equal(c.t, meta.Zone, "b", "the author's own meta data")
	all := map[string]taggedDevice{}
	for _, d := range meta.Devices {
		assert.Equal(c.t, len(d.Tags), 1, text)
		all[d.Tags[0]] = d
	}
	assert.Equal(c.t, len(all), len(meta.Devices), text)
	return all
}

// TestTags: a guest finds its devices by their tags: the addresses on its config drive are those where its kernel
// has them, also after a restart of the guest.
func TestTags(t *testing.T) {
	t.Parallel()
	vm := vmPod(t, annotated(map[string]string{
		"nodevirt.io/cloud-init-meta-data": `{"instance-id": "tags", "zone": "b"}`,
		"nodevirt.io/vmi": `{
		"domain": {"devices": {
			"disks": [
				{"name": "root", "disk": {"bus": "virtio"}},
				{"name": "drive", "disk": {"bus": "virtio"}},
				{"name": "plain", "disk": {"bus": "virtio"}},
				{"name": "scratch", "disk": {"bus": "virtio"}, "serial": "scratch-1", "tag": "fast"},
				{"name": "first", "disk": {"bus": "scsi"}},
				{"name": "logs", "disk": {"bus": "scsi"}, "serial": "logs-1", "tag": "logs"},
				{"name": "placed", "disk": {"bus": "virtio", "pciAddress": "0000:00:1e.0"}, "serial": "placed-1", "tag": "placed"}
			],
			"interfaces": [{"name": "default", "masquerade": {}, "tag": "lan"}]
		}},
		"networks": [{"name": "default", "pod": {}}],
		"volumes": [
			{"name": "root", "containerDisk": {"image": "r"}},
			{"name": "drive", "cloudInitConfigDrive": {"userData": "#cloud-config\n"}},
			{"name": "plain", "emptyDisk": {"capacity": "1Mi"}},
			{"name": "scratch", "emptyDisk": {"capacity": "1Mi"}},
			{"name": "first", "emptyDisk": {"capacity": "1Mi"}},
			{"name": "logs", "emptyDisk": {"capacity": "1Mi"}},
			{"name": "placed", "emptyDisk": {"capacity": "1Mi"}}
		]}`,
	})).vm(suite.tiny).start().up()
	for _, boot := range []string{"first", "second"} {
		vm.post("/cgi-bin/program", shell)
		all := vm.tags()
		assert.Equal(t, len(all), 4, boot)
		ask := func(command string) string { return strings.TrimSpace(vm.runs(command + "\n")) }

		lan := all["lan"]
		assert.Equal(t, lan.Type+" "+lan.Bus, "nic pci", boot)
		assert.Equal(t, ask("cat /sys/bus/pci/devices/"+lan.Address+"/virtio*/net/eth0/address"), lan.MAC, boot)

		for tag, serial := range map[string]string{"fast": "scratch-1", "placed": "placed-1"} {
			d := all[tag]
			assert.Equal(t, d.Type+" "+d.Bus+" "+d.Serial, "disk pci "+serial, boot)
			assert.Equal(t, ask("cat /sys/bus/pci/devices/"+d.Address+"/virtio*/block/vd*/serial"), serial, boot)
		}
		assert.Equal(t, all["placed"].Address, "0000:00:1e.0", boot)

		logs := all["logs"]
		assert.Equal(t, logs.Type+" "+logs.Bus+" "+logs.Serial, "disk scsi logs-1", boot)
		_, place, _ := strings.Cut(logs.Address, ":") // the kernel counts the controllers in its own way
		at := ask("basename $(readlink -f /sys/block/sdb/device)")
		assert.Assert(t, strings.HasSuffix(at, ":"+place), "%s: the guest has the disk at %s, the drive says %s", boot, at, logs.Address)
		if boot == "first" {
			vm.reboots()
		}
	}
}
