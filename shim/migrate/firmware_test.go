package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// withFirmware gives an end UEFI firmware, a TPM and a block device that the other end has, too.
func (e *end) withFirmware(t *testing.T, device string) (variables, state string) {
	t.Helper()
	firmware, err := uefi.Find(uefi.Dirs(), uefi.Wanted{Machine: "q35"})
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(firmware.Variables)
	variables = filepath.Join(e.dir, "variables")
	if err == nil {
		err = errors.Join(os.WriteFile(variables, template, 0o600), os.Chown(variables, int(e.uid), int(e.uid)))
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(device)
	if err != nil {
		t.Fatal(err)
	}
	node := "/dev/nodevirt-test-" + filepath.Base(e.node.Name()) // the VM's own, as the shim makes it
	t.Cleanup(func() {
		if err := os.Remove(node); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	err = unix.Mknod(node, unix.S_IFBLK|0o600, int(info.Sys().(*syscall.Stat_t).Rdev))
	if err == nil {
		err = os.Chown(node, int(e.uid), int(e.uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := tpm.New("swtpm", filepath.Join(e.dir, "tpms"))
	if err == nil {
		_, err = all.Start(t.Context(), tpm.Owner{ID: "vm", UID: e.uid + 1000, Client: e.uid}, func(int) error { return nil })
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if err := all.Remove(ctx, "vm"); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d := e.describe()
	d.Kernel, d.Initrd, d.Spec.Firmware.Kernel = "", "", nil
	d.Spec.Firmware.UEFI, d.UEFI, d.UEFIVariables = &vmspec.UEFI{}, &firmware, variables
	d.Spec.TPM, d.TPMSocket = true, all.Socket("vm")
	d.Spec.Disks = append(d.Spec.Disks, vmspec.Disk{Name: "claim", Bus: vmspec.BusVirtio, Target: "vdb"})
	d.Disks = append(d.Disks, domain.Disk{Layers: []domain.Layer{{Format: "raw", Path: node, Block: true}}})
	if e.xml, err = domain.XML(d); err != nil {
		t.Fatal(err)
	}
	return variables, filepath.Join(e.dir, "tpms", "vm", "state", "tpm2-00.permall")
}

// TestFirmware moves a VM whose guest has not run: the variables of its firmware and the
// state of its TPM arrive, and a device that both nodes have is not copied.
func TestFirmware(t *testing.T) {
	needs.Parts(t, "two nodes with libvirtd, QEMU, OVMF and swtpm")
	id := uuid.New()
	a, b := newEnd(t, id, 64001), newEnd(t, id, 64002)
	device := loopfs.Device(t, 1<<20)
	variables, state := a.withFirmware(t, device)
	written, brought := b.withFirmware(t, device)
	mark := []byte("what a guest has stored")
	f, err := os.OpenFile(variables, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(mark, 0xd000) // of both layouts' variables, behind the last one
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Define(t.Context(), a.xml); err != nil {
		t.Fatal(err)
	}
	release, err := a.Associate(t.Context(), id.String(), a.files)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := a.node.Output(t.Context(), "virsh", "start", "--paused", "vm"); err != nil {
		t.Fatal(err)
	}
	m := newMigration(t, a, b, never(t, a, b, func(handover.Step) {}))
	if err := m.source.Run(t.Context(), m.dial, m.shape); err != nil {
		t.Fatal(err)
	}
	if s, g := m.source.Record(), m.target.Record(); s.State != handover.Left || g.State != handover.Taken || !b.running(t) {
		t.Fatalf("source %+v, target %+v", s, g)
	}
	wait.Until(t, "the target writes the variables", func() bool {
		got, err := os.ReadFile(written)
		return err == nil && bytes.Contains(got, mark)
	})
	sent, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	// The firmware, which runs now, may have changed it: both have the same seeds.
	if got, err := os.ReadFile(brought); err != nil || len(got) < 512 || len(sent) < 512 {
		t.Errorf("the target's TPM has a state of %d bytes, the source's of %d: %v", len(got), len(sent), err)
	}
}
