package vmspec

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"
)

func TestHotplugCard(t *testing.T) {
	device := PluginInterface("lan")
	for text, want := range map[string]Interface{
		`{"name": "lan"}`: {Name: "lan", Model: "virtio", Queues: 2},
		`{"name": "lan", "bridge": {}, "model": "e1000e", "macAddress": "02-00-00-00-00-01", "state": "down", "acpiIndex": 3, "pciAddress": "0000:05:00.0"}`: {
			Name: "lan", Model: "e1000e", MAC: "02:00:00:00:00:01", Unplugged: true, ACPIIndex: 3, PCI: "0000:05:00.0",
		},
		`{"name": "lan", "bridge": {}, "dhcpOptions": {"ntpServers": ["10.0.0.1"]}}`: {
			Name: "lan", Model: "virtio", Queues: 2, DHCP: &DHCPOptions{NTPServers: []string{"10.0.0.1"}},
		},
	} {
		want.Binding, want.Device = BindingBridge, device
		got, err := HotplugCard([]byte(text), "", 2)
		assert.NilError(t, err, text)
		assert.DeepEqual(t, got, want)
	}
}

func TestHotplugCardRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "lan", "masquerade": {}}`:                "masquerade",
		`{"name": "lan", "sriov": {}}`:                     "spec.domain.devices.interfaces[0].sriov: a card that is added while the VM runs has the binding bridge",
		`{"name": "lan", "binding": {"name": "passt"}}`:    "binding: a card that is added",
		`{"name": "lan", "bootOrder": 1}`:                  "bootOrder: goes with a card that the VM starts with",
		`{"name": "lan", "tag": "a"}`:                      "tag: goes with",
		`{"name": "lan", "state": "absent"}`:               "state: an absent card",
		`{"name": "lan", "model": "virtio-transitional"}`:  "use virtio",
		`{"name": "lan", "ports": [{"port": 1}]}`:          "ports",
		`{"name": "lan", "colour": "red"}`:                 "colour",
		`{"name": "lan", "state": "up"}], "inputs": [{"a"`: "not JSON as expected",
		`{"bridge": {}}`:                                   "no interface with a name",
		`[]`:                                               "not JSON as expected",
		``:                                                 "not JSON as expected",
	} {
		if _, err := HotplugCard([]byte(text), "", 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	_, err := HotplugCard([]byte(`{"name": "lan"}`), "eth0", 0)
	assert.ErrorContains(t, err, "secondary network")
	one, err := HotplugCard([]byte(`{"name": "lan"}`), "net1", 0)
	assert.NilError(t, err)
	assert.Equal(t, one.Device, "net1")
	assert.NilError(t, CheckHotplugCard(kubevirt.Interface{Name: "lan"}))
	assert.ErrorContains(t, CheckHotplugCard(kubevirt.Interface{BootOrder: new(uint(1))}), "goes with a card")
}

// TestAbsentCard: a VM does not start with a card that is absent.
func TestAbsentCard(t *testing.T) {
	spec, problems := DecodeVMI([]byte(`{
		"domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}, "state": "absent"}]}},
		"networks": [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}}]}`))
	assert.Equal(t, len(problems), 0)
	cards, _ := interfaces(nil, spec, 1, bootOrder{})
	assert.Equal(t, len(cards), 1)
	assert.Equal(t, cards[0].Name, "default")
}
