package domain

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
)

// TestDump: QEMU writes the guest's memory to a file that only its opener may write, and the guest
// goes on, also after a dump to a volume that is full.
func TestDump(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	define(t, d, g)
	_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	assert.NilError(t, err)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	status, err := d.Dumps.Status(t.Context(), g.UUID)
	assert.NilError(t, err)
	assert.Equal(t, status, DumpNone)

	small, err := loopfs.New(t.TempDir(), loopfs.Ext4, 8<<20)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = small.Close() })
	for _, c := range []struct {
		dir  string
		want DumpStatus
	}{{t.TempDir(), DumpCompleted}, {small.Path, DumpFailed}, {t.TempDir(), DumpCompleted}} {
		path := filepath.Join(c.dir, "vm.memory.dump")
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		assert.NilError(t, err)
		assert.NilError(t, d.Dumps.Start(t.Context(), g.UUID, f))
		assert.NilError(t, f.Close())
		assert.Equal(t, dumped(t, d, g.UUID), c.want)
		if c.want == DumpCompleted {
			core, err := elf.Open(path)
			assert.NilError(t, err)
			assert.Equal(t, core.Type, elf.ET_CORE)
			assert.NilError(t, core.Close())
			info, err := os.Stat(path)
			assert.NilError(t, err)
			assert.Assert(t, info.Size() >= g.Spec.Memory, info.Size())
		}
		running(t, d, g.UUID)
	}
}

// dumped returns the status of a dump that has ended.
func dumped(t *testing.T, d *Driver, uuid string) DumpStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		s, err := d.Dumps.Status(ctx, uuid)
		assert.NilError(t, err)
		if s != DumpActive {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// running waits until libvirt reports that the guest runs.
func running(t *testing.T, d *Driver, uuid string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		s, err := d.Observer.State(ctx, uuid)
		assert.NilError(t, err)
		if s.Status == StatusRunning {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
