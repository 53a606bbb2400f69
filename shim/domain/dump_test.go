package domain

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
)

// TestDump: the guest's memory is written to a file, and the guest goes on, also after a dump to a
// volume that is full, one that is too long, and one that is cancelled.
func TestDump(t *testing.T) {
	d, g := startGuest(t)
	assert.NilError(t, d.Lifecycle.Resume(t.Context(), g.UUID))
	small, err := loopfs.New(t.TempDir(), loopfs.Ext4, 8<<20)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = small.Close() })
	pipe := filepath.Join(t.TempDir(), "pipe")
	write := func(ctx context.Context, path string, limit int64) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		assert.NilError(t, err)
		err = d.Dumps.Write(ctx, g.UUID, Dump{Pipe: pipe, Limit: limit, Stall: time.Minute}, f)
		_, gone := os.Lstat(pipe)
		assert.Assert(t, errors.Is(gone, os.ErrNotExist))
		running(t, d, g.UUID)
		return err
	}
	path := filepath.Join(t.TempDir(), "vm.memory.dump")
	assert.Assert(t, errors.Is(write(t.Context(), filepath.Join(small.Path, "dump"), 1<<30), unix.ENOSPC))
	assert.Assert(t, errors.Is(write(t.Context(), path, 1<<20), errTooLong))
	ended, end := context.WithCancel(t.Context())
	end()
	assert.Assert(t, write(ended, path, 1<<30) != nil)
	assert.NilError(t, write(t.Context(), path, 1<<30))
	core, err := elf.Open(path)
	assert.NilError(t, err)
	assert.Equal(t, core.Type, elf.ET_CORE)
	assert.NilError(t, core.Close())
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Assert(t, info.Size() >= g.Spec.Memory, info.Size())
}

// TestDumpPipe: what another process writes to the pipe is copied, up to the limit, and its writes
// fail without a reader.
func TestDumpPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	content := bytes.Repeat([]byte("memory"), 1<<20)
	for _, limit := range []int64{int64(len(content)), int64(len(content)) - 1} {
		p, err := newDumpPipe(path)
		assert.NilError(t, err)
		wrote := make(chan error, 1)
		go func() {
			err := os.WriteFile(path, content, 0) // as libvirtd opens it
			p.end()
			wrote <- err
		}()
		var got bytes.Buffer
		var since atomic.Pointer[time.Time]
		err = copyDump(&got, p.reader, limit, &since)
		if limit == int64(len(content)) {
			assert.NilError(t, err)
			assert.NilError(t, <-wrote)
			assert.Assert(t, bytes.Equal(got.Bytes(), content))
		} else {
			assert.Assert(t, errors.Is(err, errTooLong))
			p.close()
			<-wrote
		}
		p.remove()
		_, err = os.Lstat(path)
		assert.Assert(t, errors.Is(err, os.ErrNotExist))
	}
}

// TestClear: a process that waits for a reader of a pipe that a former process made goes on.
func TestClear(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	assert.NilError(t, unix.Mkfifo(pipe, 0o600))
	opened := make(chan error, 1)
	go func() {
		fd, err := unix.Open(pipe, unix.O_WRONLY, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		opened <- err
	}()
	time.Sleep(50 * time.Millisecond)
	var d Dumps
	for range 2 {
		assert.NilError(t, d.Clear(pipe))
	}
	select {
	case err := <-opened:
		assert.Assert(t, err == nil || errors.Is(err, unix.ENOENT), err) // it was late
	case <-time.After(time.Minute):
		t.Fatal("the pipe is not opened")
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
