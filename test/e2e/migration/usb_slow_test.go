//go:build slow

package migration

import (
	"testing"

	"gotest.tools/v3/assert"
)

// withUSB has more USB devices than a controller has ports by default.
const withUSB = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}},
			{"name": "stick", "disk": {"bus": "usb"}, "serial": "U-1"}, {"name": "second", "disk": {"bus": "usb"}}],
		"inputs": [{"name": "mouse"}, {"name": "pen"}, {"name": "third"}],
		"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 80}]}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "emptyDisk": {"capacity": "64Mi"}},
		{"name": "stick", "emptyDisk": {"capacity": "8Mi"}}, {"name": "second", "emptyDisk": {"capacity": "8Mi"}}]
}`

// TestUSBDisks moves a guest with disks on USB to another node and back.
func TestUSBDisks(t *testing.T) {
	a, b := newNodes(t)
	for _, m := range []*machine{a, b} {
		m.vmi = withUSB
	}
	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	boot := first.sh("cat /proc/sys/kernel/random/boot_id")
	second := move(t, first, b, "second")
	second.answers()
	assert.Equal(t, second.sh("cat /proc/sys/kernel/random/boot_id"), boot)
	third := move(t, second, a, "third")
	third.answers()
	assert.Equal(t, third.sh("cat /proc/sys/kernel/random/boot_id"), boot)
	third.remove()
}
