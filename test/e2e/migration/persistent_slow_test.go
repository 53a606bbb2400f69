//go:build slow

package migration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/vmstate"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// pushKernel gives a node the image of a guest without a disk.
func (m *machine) pushKernel(t *testing.T) {
	t.Helper()
	path, err := guest.TinyWithAgent(t.Context(), m.GuestOptions())
	assert.NilError(t, err)
	image, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
		{Name: "boot/"}, {Name: "boot/vmlinuz", From: filepath.Join(filepath.Dir(path), "vmlinuz")},
		{Name: "boot/initrd", From: filepath.Join(filepath.Dir(path), "initrd")},
	}})
	assert.NilError(t, err)
	m.image, err = m.Push(t.Context(), "kernel:1", image)
	assert.NilError(t, err)
	m.annotations = map[string]string{vmspec.AnnotationVMContainer: "guest"}
	m.vmi = `{
		"domain": {
			"firmware": {"bootloader": {"efi": {"secureBoot": false, "persistent": true}},
				"kernelBoot": {"kernelArgs": "` + guest.Cmdline + `", "container": {
				"image": "` + m.image + `", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
			"devices": {"tpm": {"persistent": true}, "interfaces": [{"name": "default", "masquerade": {}}]}
		},
		"networks": [{"name": "default", "pod": {}}]
	}`
}

// seal stores eight bytes at an index of the TPM's non-volatile memory.
func (v *vm) seal(index, secret string) {
	v.t.Helper()
	assert.NilError(v.t, guest.TPM{Run: v.sh}.Store(index, secret))
}

// sealed returns what is stored at an index.
func (v *vm) sealed(index string) string {
	v.t.Helper()
	return guest.TPM{Run: v.sh}.Stored(index)
}

const firstIndex, secondIndex, firstSecret, secondSecret = "01500001", "01500002", "the-key!", "another!"

// counters returns how many counters a firmware has put into the variables in a volume: one at each boot.
func counters(t *testing.T, folder string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "uefi-variables"))
	assert.NilError(t, err)
	return bytes.Count(text, []byte("M\x00T\x00C\x00"))
}

// content returns the files of a volume with their owners.
func content(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %v %x\n", path, info.Mode(), text)
		return err
	})
	assert.NilError(t, err)
	return all.String()
}

// TestPersistentState moves a guest whose firmware and TPM keep their state in a volume that both nodes have. A
// migration that fails leaves the state to the source. After one that succeeds, what the guest stored before and
// after is there, also for its successor on the target.
func TestPersistentState(t *testing.T) {
	a, b := newNodes(t)
	folder, other := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "other")
	assert.NilError(t, errors.Join(os.Mkdir(folder, 0o700), os.Mkdir(other, 0o700)))
	for _, m := range []*machine{a, b} {
		m.pushKernel(t)
		m.mount(vmspec.StatePath, folder)
	}
	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	first.seal(firstIndex, firstSecret)
	booted := counters(t, folder)
	inUse := func() {
		t.Helper()
		_, err := vmstate.TPM(folder, 1)
		assert.ErrorIs(t, err, vmstate.ErrInUse)
		_, err = vmstate.Variables(folder, filepath.Join(folder, "uefi-variables"))
		assert.ErrorIs(t, err, vmstate.ErrInUse)
	}

	t.Run("cancelled", func(t *testing.T) {
		was := content(t, folder)
		migration, target := begin(t, first, b, "cancelled", 1<<20)
		wait.Until(t, "it copies", func() bool {
			var r order.Report
			first.control(order.Status, migration, &r)
			return r.Processed > 1<<20
		})
		inUse()
		first.control(order.Cancel, migration, nil)
		first.over(migration.Migration)
		target.ended()
		target.remove()
		first.answers()
		inUse()
		if content(t, folder) != was {
			t.Error("the state has changed")
		}
	})

	t.Run("refused after the hand-over", func(t *testing.T) {
		was := content(t, folder)
		held, err := vmstate.TPM(other, 1)
		assert.NilError(t, err)
		defer held.Close()
		b.mount(vmspec.StatePath, other)
		defer b.mount(vmspec.StatePath, folder)
		migration, target := begin(t, first, b, "refused", 0)
		if s := target.ended(); s.Reason != condition.ReasonMigrationRefused || !strings.Contains(s.Message, "another VM uses the persistent state") {
			t.Errorf("the target ended with %d, %s, %q", s.ExitCode, s.Reason, s.Message)
		}
		if r := first.over(migration.Migration); r.State != string(handover.Kept) {
			t.Errorf("the source reports %+v", r)
		}
		target.remove()
		first.answers()
		inUse()
		if got := first.sealed(firstIndex); got != firstSecret {
			t.Errorf("the TPM has %q", got)
		}
		if content(t, folder) != was {
			t.Error("the state has changed")
		}
	})

	second := move(t, first, b, "second")
	second.answers()
	inUse()
	if got := second.sealed(firstIndex); got != firstSecret {
		t.Errorf("after the move, the TPM has %q", got)
	}
	second.seal(secondIndex, secondSecret)
	if got := counters(t, folder); got < booted {
		t.Errorf("after the move, the variables have %d counters, and had %d", got, booted)
	}
	_, _ = second.exec("reboot", "-f")
	wait.Until(t, "the firmware boots on the target, and adds a counter", func() bool { return counters(t, folder) > booted })
	second.answers()
	if got := second.sealed(firstIndex) + second.sealed(secondIndex); got != firstSecret+secondSecret {
		t.Errorf("after a reboot, the TPM has %q", got)
	}
	booted = counters(t, folder)
	second.stop()
	second.remove()

	third := b.pod(t, "third", "")
	third.start()
	third.answers()
	if got := third.sealed(firstIndex) + third.sealed(secondIndex); got != firstSecret+secondSecret {
		t.Errorf("the successor's TPM has %q", got)
	}
	if got := counters(t, folder); got <= booted {
		t.Errorf("the successor's variables have %d counters, and had %d", got, booted)
	}
	fourth := move(t, third, a, "fourth") // the state of a TPM that did not arrive itself
	fourth.answers()
	if got := fourth.sealed(secondIndex); got != secondSecret {
		t.Errorf("after the way back, the TPM has %q", got)
	}
	fourth.stop()
	fourth.remove()
}
