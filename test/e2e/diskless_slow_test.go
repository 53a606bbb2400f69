//go:build slow

package e2e

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/guest"
)

// TestOnlyAKernel boots a kernel and an initial RAM disk from an image without a disk.
func TestOnlyAKernel(t *testing.T) {
	t.Parallel()
	ref := tinyKernel(t, "only-kernel:1")

	c := withoutDisk(t, `{
		"domain": {
			"firmware": {"kernelBoot": {"kernelArgs": "`+guest.Cmdline+` e2e.kernel=only", "container": {
				"image": "`+ref+`", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"interfaces": [{"name": "default", "bridge": {}}]}
		},
		"networks": [{"name": "default", "pod": {}}]
	}`).vm(ref).start().up()
	g := c.guest()
	if !strings.HasSuffix(g.Cmdline, "e2e.kernel=only") || len(g.Disks) != 0 {
		t.Errorf("command line %q, disks %+v", g.Cmdline, g.Disks)
	}
	c.reboots()
	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
}
