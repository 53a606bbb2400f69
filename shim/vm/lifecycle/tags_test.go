package lifecycle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const taggedVMI = `{"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio", "pciAddress": "0000:07:00.0"}, "tag": "system", "serial": "s1"},
			{"name": "drive", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "pods", "macAddress": "02:00:00:aa:bb:01", "masquerade": {}, "tag": "lan", "pciAddress": "0000:08:00.0"}]}},
	"networks": [{"name": "pods", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}, {"name": "drive", "cloudInitConfigDrive": {"userData": "#cloud-config"}}]}`

func taggedDevices() []vmspec.TaggedDevice {
	return []vmspec.TaggedDevice{
		{Type: vmspec.DeviceNIC, Bus: "pci", Address: "0000:08:00.0", MAC: "02:00:00:aa:bb:01", Tags: []string{"lan"}},
		{Type: vmspec.DeviceDisk, Bus: "pci", Address: "0000:07:00.0", Serial: "s1", Tags: []string{"system"}},
	}
}

// TestTags: a start writes the devices' addresses to the config drive before QEMU starts, and only if the VM
// has tags and a config drive.
func TestTags(t *testing.T) {
	for name, c := range map[string]struct {
		vmi  string
		want []vmspec.TaggedDevice
	}{
		"tags":               {taggedVMI, taggedDevices()},
		"no config drive":    {strings.Replace(taggedVMI, "cloudInitConfigDrive", "cloudInitNoCloud", 1), nil},
		"no tags":            {strings.NewReplacer(`"tag": "system", `, "", `"tag": "lan", `, "").Replace(taggedVMI), nil},
		"no cloud-init disk": {cardsVMI, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: c.vmi}), request(0))
				must(t, err)
				n.script.Reset()
				n.script.Fail("Libvirt.Start", errors.New("no QEMU"))
				wantError(t, n.Start(t.Context(), id), "no QEMU")
				if diff := cmp.Diff(c.want, n.disks.Devices(id)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestTagsRefused: a guest does not start with a config drive without its tags.
func TestTagsRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: taggedVMI}), request(0))
		must(t, err)
		n.script.Fail("Disks.WriteDevices", errors.New("the disk is full"))
		wantError(t, n.Start(t.Context(), id), `start VM container "vm" of pod default/pod: the disk is full`)
		n.wantEnd(t, id, 128, "StartError", "the disk is full")
	})
}

// TestTagsOfGuestThatCame: the config drive that the target made gets the addresses of the guest that came.
func TestTagsOfGuestThatCame(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{order.Annotation: migration, vmspec.AnnotationVMI: taggedVMI}), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if got := n.disks.Devices(id); got != nil {
			t.Errorf("before the guest came: %v", got)
		}
		n.arriveWith(t, id, `<devices>
			<interface type="ethernet"><mac address="02:00:00:aa:bb:01"/><alias name="ua-nic_pods"/>
				<address type="pci" domain="0" bus="8" slot="0" function="0"/></interface>
			<disk type="file"><target dev="vda" bus="virtio"/><serial>s1</serial><alias name="ua-root"/>
				<address type="pci" domain="0" bus="7" slot="0" function="0"/></disk></devices>`)
		v, err := n.table.Find(id)
		must(t, err)
		must(t, n.Admit(t.Context(), v))
		if diff := cmp.Diff(taggedDevices(), n.disks.Devices(id)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
