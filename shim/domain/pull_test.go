package domain

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/nbd"
)

// pulled is a copy of a disk that a reader makes.
type pulled struct {
	*backedUp
	socket string
	copy   []byte
}

// pull begins a pull backup, and serves it.
func (p *pulled) pull(t *testing.T, checkpoint, since string) {
	t.Helper()
	f := p.file(t, filepath.Join(p.dir, "scratch-"+checkpoint), backedUpSize)
	assert.NilError(t, p.Backups.Begin(t.Context(), p.uuid, Backup{Disks: p.disks(), Checkpoint: checkpoint, Since: since, Pull: true}, []*os.File{f}))
	p.serve(t, since != "")
}

func (p *pulled) serve(t *testing.T, changes bool) {
	t.Helper()
	p.socket = filepath.Join(t.TempDir(), "nbd.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.socket})
	assert.NilError(t, err)
	l.SetUnlinkOnClose(false)
	listener, err := l.File()
	assert.NilError(t, err)
	assert.NilError(t, p.Backups.Serve(t.Context(), p.uuid, []ServedDisk{{Target: "vdb", Name: "data", Changes: changes}}, listener))
	assert.NilError(t, errors.Join(listener.Close(), l.Close()))
}

func (p *pulled) open(t *testing.T, contexts ...string) *nbd.Client {
	t.Helper()
	conn, err := net.Dial("unix", p.socket)
	assert.NilError(t, err)
	t.Cleanup(func() { conn.Close() })
	c, err := nbd.Open(conn, "data", contexts...)
	assert.NilError(t, err)
	return c
}

// read copies what a map says, and returns how many bytes that was.
func (p *pulled) read(t *testing.T, changed bool) (n int64) {
	t.Helper()
	context, want := nbd.ContextAllocation, func(flags uint32) bool { return flags&nbd.Zero == 0 }
	if changed {
		context, want = "qemu:dirty-bitmap:"+ChangesBitmap, func(flags uint32) bool { return flags&nbd.Dirty != 0 }
	}
	extents, content := p.open(t, context), p.open(t)
	assert.Equal(t, content.Size(), int64(backedUpSize))
	for at := int64(0); at < backedUpSize; {
		all, err := extents.Status(at, backedUpSize-at)
		assert.NilError(t, err)
		for _, e := range all[context] {
			for end := at + e.Length; at < end; {
				piece := min(end-at, 1<<20)
				if want(e.Flags) {
					assert.NilError(t, content.Read(p.copy[at:at+piece], at))
					n += piece
				}
				at += piece
			}
		}
	}
	return n
}

// end ends a pull backup.
func (p *pulled) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ended := false; !ended; {
		var err error
		ended, err = p.Backups.End(ctx, p.uuid, p.disks())
		assert.NilError(t, err)
	}
	assert.NilError(t, p.Backups.Close(ctx, p.uuid, p.disks()))
}

// same compares the copy with the disk.
func (p *pulled) same(t *testing.T) {
	t.Helper()
	path := filepath.Join(p.dir, "copy")
	assert.NilError(t, os.WriteFile(path, p.copy, 0o600))
	tool(t, "qemu-img", "compare", "-U", "-f", "raw", "-F", "raw", path, p.path)
}

// TestPull: a reader gets the disk as it was when the backup began, though the guest writes meanwhile,
// and by the next backup little more than what was written since. The scratch file has what the
// guest has overwritten alone. A libvirtd that restarts changes nothing, and the end ends the readers.
func TestPull(t *testing.T) {
	p := &pulled{backedUp: newBackedUp(t), copy: make([]byte, backedUpSize)}
	p.io(t, "write -P 1 0 8M")
	p.pull(t, "first", "")
	p.io(t, "write -P 7 1M 1M")
	p.io(t, "write -z 4M 1M")
	p.libvirtd.kill(t)
	events, unsubscribe := p.Connection.Subscribe()
	defer unsubscribe()
	p.libvirtd.start(t)
	eventually(t, events, "of a new connection", func(e Event) bool { return e.Kind == EventResync })
	assert.Equal(t, p.read(t, false), int64(8<<20))
	for i, b := range p.copy {
		if want := byte(1); i < 8<<20 && b != want || i >= 8<<20 && b != 0 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	info, err := os.Stat(filepath.Join(p.dir, "scratch-first"))
	assert.NilError(t, err)
	if n := info.Sys().(*syscall.Stat_t).Blocks * 512; n > 3<<20 {
		t.Errorf("the scratch file has %d bytes, for 2 MiB that were overwritten", n)
	}
	jobs, err := p.Backups.Jobs(t.Context(), p.uuid, p.disks())
	assert.NilError(t, err)
	assert.DeepEqual(t, jobs, BackupJobs{Found: 1})
	reader := p.open(t)
	p.serve(t, false) // to another reader
	assert.Assert(t, reader.Read(make([]byte, 512), 0) != nil)
	reader = p.open(t)
	assert.NilError(t, reader.Read(make([]byte, 512), 0))
	p.end(t)
	assert.Assert(t, reader.Read(make([]byte, 512), 0) != nil)
	assert.Equal(t, opened(t, p.pid, filepath.Join(p.dir, "scratch-first")), 0)
	if _, err := net.Dial("unix", p.socket); err == nil {
		t.Error("QEMU listens after the end")
	}

	const written = 5 << 20
	p.io(t, "write -P 2 16M %d", written)
	p.pull(t, "second", "first")
	p.io(t, "write -P 9 32M 64k") // after the backup
	if n := p.read(t, true); n > (written+2<<20)*11/10 || n < written+2<<20 {
		t.Errorf("the reader got %d bytes, for %d that were written", n, written+2<<20)
	}
	p.end(t)
	p.pull(t, "third", "second")
	assert.Equal(t, p.read(t, true), int64(64<<10))
	p.end(t)
	p.same(t)
	sources, err := p.Backups.Sources(t.Context(), p.uuid)
	assert.NilError(t, err)
	assert.DeepEqual(t, sources["vdb"], BackupSource{Size: backedUpSize, Checkpoints: []string{"first", "second", "third"}})
	err = p.Backups.Serve(t.Context(), p.uuid, []ServedDisk{{Target: "vdb", Name: "data"}}, openFile(t, os.DevNull, os.O_RDONLY))
	if !errors.Is(err, ErrChanged) {
		t.Errorf("readers of a backup that has ended: %v", err)
	}
	p.backUp(t, "fourth", "third") // a backup to a file follows, too
}
