//go:build slow

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/vmstate"
	"github.com/nodevirt/nodevirt/test/guest"
)

// TestPersistentState: a VM's firmware and TPM go on where those of its predecessor ended, and while it runs no
// other VM can use their volume. The TPM counts its starts, and OVMF adds a counter to its variables at each boot.
func TestPersistentState(t *testing.T) {
	t.Parallel()
	ref := tinyKernel(t, "state:1")
	folder := filepath.Join(suite.Dir(), "state") // which only root may enter
	assert.NilError(t, os.Mkdir(folder, 0o700))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	p := withoutDisk(t, `{
		"domain": {
			"firmware": {"bootloader": {"efi": {"secureBoot": false, "persistent": true}},
				"kernelBoot": {"kernelArgs": "`+guest.Cmdline+`", "container": {
				"image": "`+ref+`", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"tpm": {"persistent": true}, "interfaces": [{"name": "default", "bridge": {}}]}
		},
		"networks": [{"name": "default", "pod": {}}]
	}`)
	with := func(attempt uint32) func(c *runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) {
			c.Metadata.Attempt, c.LogPath = attempt, fmt.Sprintf("guest_%d.log", attempt)
			c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: vmspec.StatePath, HostPath: folder})
		}
	}
	counters, starts := 0, ""
	for attempt := range 2 {
		c := p.vm(ref, with(uint32(attempt))).start()
		c.saying("nodevirt guest: up host=")
		shell := c.attach("-i")
		// TPM2_ReadClock, whose answer has the number of starts at offset 26 (TPM 2.0 library, part 3). A
		// command is one write; the shell's printf ends its writes at a newline.
		shell.types("printf '\\200\\001\\000\\000\\000\\012\\000\\000\\001\\201' >/tmp/clock; exec 3<>/dev/tpm0; dd bs=10 count=1 </tmp/clock >&3; " +
			"echo starts $(dd bs=64 count=1 <&3 2>/dev/null | dd bs=1 skip=26 count=4 2>/dev/null | od -An -tx1) $((40 + 2))\r")
		shell.sees(" 42")
		before := starts
		if starts = regexp.MustCompile(`starts( [0-9a-f]{2}){4} 42`).FindString(shell.seen()); starts <= before {
			t.Errorf("the TPM says %q, and %q before the restart; it says in all:\n%s", starts, before, shell.seen())
		}
		_, err := vmstate.TPM(folder, 1)
		assert.ErrorIs(t, err, vmstate.ErrInUse)
		text, err := os.ReadFile(filepath.Join(folder, "uefi-variables"))
		assert.NilError(t, err)
		if now := bytes.Count(text, []byte("M\x00T\x00C\x00")); now <= counters {
			t.Errorf("the variables have %d counters after start %d, and had %d", now, attempt, counters)
		} else {
			counters = now
		}
		c.stop(0)
		c.removeIt()
	}
}
