package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestFirmware boots by UEFI, which measures into a TPM, and restarts the shim meanwhile: it is not
// parallel. The kernel comes from the firmware's own loader.
func TestFirmware(t *testing.T) {
	ref := tinyKernel(t, "firmware:1")

	c := withoutDisk(t, `{
		"domain": {
			"chassis": {"asset": "A-17"},
			"firmware": {"bootloader": {"efi": {"secureBoot": false}},
				"acpi": {"slicNameRef": "license"},
				"kernelBoot": {"kernelArgs": "`+guest.Cmdline+`", "container": {
				"image": "`+ref+`", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"tpm": {}, "interfaces": [{"name": "default", "bridge": {}}]}
		},
		"networks": [{"name": "default", "pod": {}}],
		"volumes": [{"name": "license", "secret": {"secretName": "license"}}]
	}`).vm(ref, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/license", Readonly: true,
			HostPath: secret(t, "slic.bin", "SLIC\x25\x00\x00\x00\x01"+strings.Repeat(".", 28))})
	}).start()
	c.saying("nodevirt guest: up host=") // the firmware has cleared the screen before it
	shell := c.attach("-i")
	shell.types("cd /sys; echo efi $(cat firmware/efi/fw_platform_size) tpm $(cat class/tpm/tpm0/tpm_version_major)." +
		" asset $(cat class/dmi/id/chassis_asset_tag) slic $(wc -c <firmware/acpi/tables/SLIC).\r")
	shell.sees("efi 64 tpm 2. asset A-17 slic 37.")
	// OVMF measures itself, and a guest that restarts does not reset the TPM's process.
	const measured = "echo measured $(tr -d 0 </sys/class/tpm/tpm0/pcr-sha256/0 | wc -c | sed 's/^[1-9].*/yes/') $((40 + 2))\r"
	shell.types(measured)
	shell.sees("measured yes 42")

	emulator := func() []string {
		var found []string
		for line := range strings.Lines(inNode(t, "ps", "-eo", "pid=,uid=,args=")) {
			if strings.Contains(line, "swtpm socket") && strings.Contains(line, c.id) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	before := emulator()
	if len(before) != 1 {
		t.Fatalf("swtpm runs as %q", before)
	}
	c.reboots()
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	again := c.attach("-i")
	again.types(strings.Replace(measured, "40 + 2", "40 + 3", 1))
	again.sees("measured yes 43")
	assert.DeepEqual(t, emulator(), before)

	qemu := strconv.Itoa(c.pid())
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	inNode(t, "kill", "-9", qemu)
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	wait.Until(t, "the TPM ends with the VM", func() bool { return len(emulator()) == 0 })
	c.removeIt()
}

// TestIgnition: a guest reads the configuration for Ignition, with all its characters, from QEMU's firmware device.
func TestIgnition(t *testing.T) {
	t.Parallel()
	config := `{"ignition": {"version": "3.4.0"}, "storage": {"files": "a,b = '\"<&>"}}` + "\n\u00e9"
	c := vmPod(t, annotated(map[string]string{"kubevirt.io/ignitiondata": config})).vm(suite.agent).start().up()
	c.agentIs(agent.Present)
	c.wantExec(config, "", 0, "cat", "/sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw")
	c.removeIt()
}

// TestSecureBoot has firmware with Microsoft's keys, for which Debian's kernel has no signature, and
// firmware that starts it. A guest whose boot loaders and kernel are signed boots with secure boot.
func TestSecureBoot(t *testing.T) {
	k, err := guest.TinyKernel(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	disk, err := guest.UEFIDisk(t.Context(), t.TempDir(), k.Image)
	assert.NilError(t, err)
	ref, err := pushDisk(t.Context(), "uefi:1", disk, images.DiskOptions{})
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))
	for _, tt := range []struct{ name, features, secure, says string }{
		{"off", "{}", "false", `BdsDxe: starting Boot`},
		{"on", `{"smm": {"enabled": true}}`, "true", `BdsDxe: failed to load Boot.*: Access Denied`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
				"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": ` + tt.secure + `}}}, "features": ` + tt.features + `,
					"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
				"volumes": [{"name": "root", "containerDisk": {}}]}`})).vm(ref).start()
			c.saying(tt.says)
			c.stop(0)
			c.removeIt()
		})
	}
	t.Run("signed", func(t *testing.T) {
		t.Parallel()
		disk, err := guest.TinyWithUEFI(t.Context(), suite.GuestOptions())
		assert.NilError(t, err)
		c := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
			"domain": {"firmware": {"bootloader": {"efi": {}}}, "features": {"smm": {"enabled": true}},
				"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
			"volumes": [{"name": "root", "containerDisk": {}}]}`})).vm(pushed(t, "tiny-uefi:1", disk, images.DiskOptions{}), func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
		}).start()
		c.saying("nodevirt guest: up host=")
		shell := c.attach("-i")
		shell.types("mount -t securityfs none /sys/kernel/security; echo lockdown $(cat /sys/kernel/security/lockdown).\r")
		shell.sees("lockdown none [integrity] confidentiality.")
		c.removeIt()
	})
}
