//go:build slow

package e2e

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// Volumes without a disk are on SATA, as with KubeVirt, where QEMU has no disk that can't be written: a
// seed is a CD there. The guest finds both, and does what the seed says.
func TestSeedOnSATA(t *testing.T) {
	t.Parallel()
	disk, err := guest.TinyWithSATA(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	c := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}},
			{"name": "seed", "cloudInitNoCloud": {"userData": "#!/bin/sh\necho seeded from a CD\n"}}]
	}`})).vm(pushed(t, "tiny-sata:1", disk, images.DiskOptions{})).start().up()
	c.saying("seeded from a CD$")
	disks := c.guest().Disks
	if len(disks) != 2 || disks[0].Name != "sda" || disks[0].ReadOnly || disks[1].Name != "sr0" || !disks[1].ReadOnly {
		t.Errorf("the guest sees the disks %+v; want a disk and a CD", disks)
	}
	c.post("/cgi-bin/disk", "kept")
	if got := c.page("/cgi-bin/disk"); got != "kept" {
		t.Errorf("written to the disk was %q", got)
	}
}
