//go:build slow

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestUSBDisks has a guest boot from a disk on USB, and read and write others there, beside more USB devices
// than a controller has ports by default.
func TestUSBDisks(t *testing.T) {
	t.Parallel()
	boot, err := guest.TinyWithUSB(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	raw, rawDigest := dataDisk(t, "raw.img", "raw ", 3*mebibyte)
	plain, qcowDigest := dataDisk(t, "plain.img", "qcow2 ", 5*mebibyte)
	qcow2 := filepath.Join(t.TempDir(), "data.qcow2")
	inNode(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", plain, qcow2)
	rawID, qcowID := pushed(t, "usb-raw:1", raw, images.DiskOptions{}), pushed(t, "usb-qcow2:1", qcow2, images.DiskOptions{})
	vm := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {
			"clientPassthrough": {}, "inputs": [{"name": "mouse"}],
			"disks": [
				{"name": "root", "disk": {"bus": "usb"}, "bootOrder": 1},
				{"name": "stick", "disk": {"bus": "usb"}, "serial": "a-serial-of-20-bytes"},
				{"name": "fixed", "disk": {"bus": "usb", "readonly": true}}
			]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "stick", "containerDisk": {"image": "s"}},
			{"name": "fixed", "containerDisk": {"image": "f"}}]
	}`})).vm(pushed(t, "tiny-usb:1", boot, images.DiskOptions{}), mounts("/v/stick", rawID, "/v/fixed", qcowID)).start().up()

	var got []guestDisk
	wait.Until(t, "the guest has three disks", func() bool { // the kernel finds them in any order
		got = vm.guest().Disks
		return len(got) == 3
	})
	slices.SortFunc(got, func(a, b guestDisk) int { return int(a.Size - b.Size) })
	names := map[int64]string{}
	for i := range got {
		names[got[i].Size] = got[i].Name
		assert.Assert(t, strings.HasPrefix(got[i].Name, "sd"), got)
		got[i].Name, got[i].Serial = "", "" // the kernel does not ask USB disks
	}
	want := []guestDisk{{Size: 3 * mebibyte}, {Size: 5 * mebibyte, ReadOnly: true}, {Size: 64 * mebibyte}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the guest's disks (-want +got):\n%s", diff)
	}
	stick, fixed := names[3*mebibyte], names[5*mebibyte]
	for name, want := range map[string]string{stick: rawDigest, fixed: qcowDigest} {
		if got := vm.disk(name); got != want {
			t.Errorf("%s has the digest %s; want %s", name, got, want)
		}
	}
	if after := vm.write(stick, "the guest's own"); after == rawDigest {
		t.Errorf("%s is not written", stick)
	}
}
