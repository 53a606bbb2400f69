//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// windowsVMI has what manifests of Windows guests have.
const windowsVMI = `{
	"domain": {
		"clock": {"utc": {}, "timer": {"hpet": {"present": false}, "pit": {"tickPolicy": "delay"}, "rtc": {"tickPolicy": "catchup"}, "hyperv": {}}},
		"cpu": {"cores": 2},
		"features": {"acpi": {}, "apic": {}, "smm": {}, "hyperv": {
			"relaxed": {}, "vapic": {}, "spinlocks": {"spinlocks": 8191}, "vpindex": {}, "synic": {}, "synictimer": {"direct": {}}, "reset": {},
			"runtime": {}, "frequencies": {}, "reenlightenment": {}, "tlbflush": {}, "ipi": {}
		}},
		"firmware": {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "bootloader": {"efi": {"secureBoot": true}}},
		"devices": {
			"tpm": {}, "autoattachGraphicsDevice": true, "video": {"type": "bochs"}, "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
			"interfaces": [{"name": "default", "masquerade": {}, "model": "e1000e"}],
			"disks": [
				{"name": "system", "disk": {"bus": "sata"}}, {"name": "answers", "cdrom": {"bus": "sata"}},
				{"name": "drivers", "cdrom": {"bus": "sata"}}
			]
		}
	},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [
		{"name": "system", "persistentVolumeClaim": {"claimName": "system"}}, {"name": "answers", "sysprep": {"secret": {"name": "answers"}}},
		{"name": "drivers", "containerDisk": {"image": "drivers"}}
	]
}`

// TestWindowsMachine starts a machine as Windows needs it, whose firmware finds the loader on the PVC's SATA disk and
// refuses it: Debian's kernel, which stands for the loader, has no signature of Microsoft's. On the CDs are the answers
// and the drivers.
func TestWindowsMachine(t *testing.T) {
	t.Parallel()
	k, err := guest.TinyKernel(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	loader, err := guest.UEFIDisk(t.Context(), t.TempDir(), k.Image)
	assert.NilError(t, err)
	claim := filepath.Join(suite.Dir(), "windows")
	assert.NilError(t, os.Mkdir(claim, 0o755))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(claim)) })
	assert.NilError(t, os.Rename(loader, filepath.Join(claim, "disk.img")))
	cd := filepath.Join(t.TempDir(), "drivers.iso")
	assert.NilError(t, guest.WriteCD(cd, guest.BootSector("drivers", guest.Halt)))
	drivers := pushed(t, "windows-drivers:1", cd, images.DiskOptions{AsFolder: true})

	c := withoutDisk(t, windowsVMI).vm(suite.busybox, mounts("/v/drivers", drivers), func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/system", HostPath: claim},
			&runtimeapi.Mount{
				ContainerPath: "/volumes/answers", Readonly: true,
				HostPath: volumeOf(t, "secret", "answers", map[string]string{"Autounattend.xml": "<a/>"}),
			})
	}).start()
	c.saying(`BdsDxe: failed to load Boot.*Sata\(.*: Access Denied`)
	devices := inNode(t, "virsh", "qemu-monitor-command", "--hmp", c.info().VM.Domain.Name, "info qtree")
	for _, want := range []string{"dev: e1000e,", "dev: usb-tablet,", "dev: tpm-", "dev: ide-hd,", "dev: bochs-display,"} {
		if !strings.Contains(devices, want) {
			t.Errorf("the machine has no %q", want)
		}
	}
	if cds := strings.Count(devices, "dev: ide-cd,"); cds != 2 {
		t.Errorf("the machine has %d CD-ROM drives, want 2", cds)
	}
	c.stop(0)
	c.removeIt()
}
