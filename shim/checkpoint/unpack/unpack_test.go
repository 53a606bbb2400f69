package unpack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/confine/confinetest"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/checkpoint/unpack"
	"github.com/nodevirt/nodevirt/test/needs"
)

func TestMain(m *testing.M) {
	confinetest.Enter()
	if len(os.Args) == 4 && os.Args[1] == unpack.Command {
		os.Exit(unpack.Main(os.Args[2], os.Args[3], os.Stderr))
	}
	os.Exit(m.Run())
}

const uid = 1_900_000_011

// content is a disk's: data, zeros and data.
func content() []byte {
	return append(append(bytes.Repeat([]byte("written "), 9000), make([]byte, 4<<20)...), "end"...)
}

// saved returns a checkpoint with a disk.
func saved(t *testing.T, data []byte) (checkpoint.Files, checkpoint.Disk) {
	t.Helper()
	needs.Parts(t, "root")
	path := filepath.Join(t.TempDir(), "checkpoint.tar")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	var m checkpoint.Manifest
	m.Memory, err = w.AddMemory(strings.NewReader("memory"))
	assert.NilError(t, err)
	d, err := w.AddDisk("root", bytes.NewReader(data))
	assert.NilError(t, err)
	m.Disks = []checkpoint.Disk{d}
	assert.NilError(t, w.Close(m))
	a, err := checkpoint.OpenArchive(path)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a, d
}

func unpacker(t *testing.T) unpack.Unpacker {
	t.Helper()
	self, err := os.Executable()
	assert.NilError(t, err)
	return unpack.Unpacker{Tool: expand.Tool{Stage: confinetest.Stage(), Dir: t.TempDir()}, Program: self}
}

func empty(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	assert.NilError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestDisk: another process, without root's rights, decompresses the disk, and not before it is in its cgroup.
func TestDisk(t *testing.T) {
	files, d := saved(t, content())
	to, pid := empty(t), 0
	err := unpacker(t).Disk(t.Context(), uid, files, d, d.Size, to, func(started int) error {
		pid = started
		info, err := to.Stat()
		if err == nil && info.Size() > 0 {
			err = errors.New("it wrote before it belonged to a cgroup")
		}
		return err
	})
	assert.NilError(t, err)
	if pid == 0 || pid == os.Getpid() {
		t.Errorf("process %d has decompressed it", pid)
	}
	data, err := os.ReadFile(to.Name())
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(data, content()))
	var info unix.Stat_t
	assert.NilError(t, unix.Stat(to.Name(), &info))
	assert.Assert(t, info.Blocks*512 < 1<<20, "%d bytes of zeros are written", info.Blocks*512)
}

// TestDiskFails: errors have the kinds that an unpacking in the shim has, and no process stays.
func TestDiskFails(t *testing.T) {
	refused := errors.New("refused")
	for name, row := range map[string]struct {
		change  func(*checkpoint.Disk)
		started func(int) error
		want    error
	}{
		"larger than it says":  {change: func(d *checkpoint.Disk) { d.Size-- }, want: checkpoint.ErrUnusable},
		"smaller than it says": {change: func(d *checkpoint.Disk) { d.Size++ }, want: checkpoint.ErrUnusable},
		"cut off":              {change: func(d *checkpoint.Disk) { d.Stored /= 2 }, want: checkpoint.ErrUnusable},
		"another checksum":     {change: func(d *checkpoint.Disk) { d.SHA256 = strings.Repeat("0", 64) }, want: checkpoint.ErrUnusable},
		"no cgroup":            {started: func(int) error { return refused }, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			files, d := saved(t, content())
			if row.change != nil {
				row.change(&d)
			}
			pid := 0
			err := unpacker(t).Disk(t.Context(), uid, files, d, d.Size, empty(t), func(started int) error {
				pid = started
				if row.started != nil {
					return row.started(started)
				}
				return nil
			})
			if !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Errorf("process %d stays", pid)
			}
		})
	}
}

// TestFull: a full file system is reported as such.
func TestFull(t *testing.T) {
	files, d := saved(t, bytes.Repeat([]byte("0123456789abcdef"), 64<<10))
	dir := t.TempDir()
	assert.NilError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { assert.NilError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	to, err := os.Create(filepath.Join(dir, "disk"))
	assert.NilError(t, err)
	defer to.Close()
	err = unpacker(t).Disk(t.Context(), uid, files, d, d.Size, to, func(int) error { return nil })
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
}

// TestCancel: the process ends with the context, whatever it does.
func TestCancel(t *testing.T) {
	files, d := saved(t, content())
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("the pod is stopped")
	err := unpacker(t).Disk(ctx, uid, files, d, d.Size, empty(t), func(int) error {
		cancel(stopped)
		return nil
	})
	if !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
}
