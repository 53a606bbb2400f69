package forks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain/fdpass/server"
	"github.com/nodevirt/nodevirt/shim/domain/ramfd"
)

const size = 1 << 20

// stream returns QEMU's stream of a guest whose second page has content, and its devices' state.
func stream(content byte) []byte {
	var b bytes.Buffer
	put := func(all ...any) {
		for _, one := range all {
			if text, ok := one.(string); ok {
				one = append([]byte{byte(len(text))}, text...)
			}
			_ = binary.Write(&b, binary.BigEndian, one)
		}
	}
	put([]byte("QEVM"), uint32(3), byte(1), uint32(2), "ram", uint32(0), uint32(4))
	put(uint64(size|0x04), ramfd.Block, uint64(size), uint64(0x10))
	put(byte(3), uint32(2), uint64(4096|0x08), ramfd.Block, bytes.Repeat([]byte{content}, 4096), uint64(0x10))
	put(byte(4), []byte("devices"))
	return b.Bytes()
}

// archive returns a checkpoint with a stream.
func archive(t *testing.T, data []byte) (checkpoint.Files, checkpoint.Manifest) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "checkpoint.tar")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	m := checkpoint.Manifest{}
	m.Memory, err = w.AddMemory(bytes.NewReader(data))
	assert.NilError(t, err)
	assert.NilError(t, w.Close(m))
	a, err := checkpoint.OpenArchive(path)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a, m
}

// open makes the container's file, and opens the memory.
func open(t *testing.T, s *Store, data []byte) (*Memory, error) {
	t.Helper()
	files, m := archive(t, data)
	path := filepath.Join(t.TempDir(), "memory")
	assert.NilError(t, s.Link(t.Context(), files, m, path))
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	got, err := s.Open(t.Context(), "default", m, size, f)
	return closing(t, got, err)
}

func closing(t *testing.T, got *Memory, err error) (*Memory, error) {
	t.Helper()
	if err == nil {
		t.Cleanup(func() { _ = got.Close() })
	}
	return got, err
}

func inode(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var info unix.Stat_t
	assert.NilError(t, unix.Fstat(int(f.Fd()), &info))
	return info.Ino
}

func TestShared(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "checkpoints"), size)
	one, err := open(t, s, stream('x'))
	assert.NilError(t, err)
	two, err := open(t, s, stream('x'))
	assert.NilError(t, err)
	other, err := open(t, s, stream('y'))
	assert.NilError(t, err)
	if inode(t, one.RAM) != inode(t, two.RAM) || inode(t, one.RAM) == inode(t, other.RAM) {
		t.Error("the RAM is not that of the checkpoint")
	}
	for _, m := range []*Memory{one, two} {
		rest, err := io.ReadAll(m.Rest)
		assert.NilError(t, err)
		assert.Assert(t, bytes.HasSuffix(rest, []byte("\x04devices")) && !bytes.Contains(rest, []byte("xxx")), "%q", rest)
	}
	page := make([]byte, 2)
	_, err = one.RAM.ReadAt(page, 4095)
	assert.NilError(t, err)
	assert.Equal(t, string(page), "\x00x")
	// No process can change it, but each can map it as its own.
	if _, err := one.RAM.WriteAt([]byte("z"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v", err)
	}
	if err := one.RAM.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v", err)
	}
	if err := unix.Fallocate(int(one.RAM.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); !errors.Is(err, unix.EPERM) {
		t.Errorf("discard: %v", err)
	}
	mapped, err := unix.Mmap(int(one.RAM.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	assert.NilError(t, err)
	mapped[4096] = 'z'
	assert.NilError(t, unix.Munmap(mapped))
	_, err = two.RAM.ReadAt(page, 4095)
	assert.NilError(t, err)
	assert.Equal(t, string(page), "\x00x")
}

func TestNotShared(t *testing.T) {
	for words, s := range map[string]*Store{
		"does not share":                    New(t.TempDir(), 0),
		"may have 4095 bytes of shared RAM": New(t.TempDir(), 4095),
	} {
		if _, err := open(t, s, stream('x')); !errors.Is(err, ErrNotShared) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
		assert.Equal(t, s.ram.Used()+s.outlines.Used(), int64(0))
	}
	if _, err := open(t, New(t.TempDir(), size), []byte("no stream")); !errors.Is(err, ErrNotShared) {
		t.Errorf("%v", err)
	}
	files, m := archive(t, stream('x'))
	m.Memory.SHA256 = strings.Repeat("0", 64)
	dir := t.TempDir()
	err := New(dir, size).Link(t.Context(), files, m, filepath.Join(t.TempDir(), "memory"))
	assert.ErrorIs(t, err, checkpoint.ErrUnusable)
	left, err := os.ReadDir(dir)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := New(dir, size)
		m, err := open(t, s, stream('x'))
		assert.NilError(t, err)
		assert.NilError(t, m.Close())
		all, err := os.ReadDir(dir)
		assert.NilError(t, err)
		assert.Equal(t, len(all), 1)
		sum := all[0].Name()
		used := true
		files := func(sums string) bool { return used && sums == sum }
		for _, wait := range []time.Duration{0, time.Hour} {
			time.Sleep(wait)
			assert.NilError(t, s.Collect(files))
			assert.Equal(t, len(s.shared), 1)
		}
		used = false
		assert.NilError(t, s.Collect(files))
		assert.Equal(t, len(s.shared), 1) // for the next one
		time.Sleep(keep + time.Second)
		assert.NilError(t, s.Collect(files))
		assert.Equal(t, len(s.shared), 0)
		assert.Equal(t, s.ram.Used()+s.outlines.Used(), int64(0))
		_, err = open(t, s, stream('x'))
		assert.NilError(t, err)
	})
}

// TestCollectFiles: a file stays while a container that has not started has it.
func TestCollectFiles(t *testing.T) {
	s := New(t.TempDir(), size)
	files, m := archive(t, stream('x'))
	link, own := filepath.Join(t.TempDir(), "memory"), filepath.Join(s.dir, m.Memory.SHA256)
	assert.NilError(t, s.Link(t.Context(), files, m, link))
	old := time.Now().Add(-time.Hour)
	none := func(string) bool { return false }
	assert.NilError(t, os.Chtimes(own, old, old))
	assert.NilError(t, s.Collect(none))
	_, err := os.Stat(own)
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(link))
	assert.NilError(t, s.Collect(none))
	_, err = os.Stat(own)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestServe: a program in QEMU's place gets the RAM by the socket, and names it to QEMU.
func TestServe(t *testing.T) {
	s := New(t.TempDir(), size)
	m, err := open(t, s, stream('x'))
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "ram")
	passed, err := server.Serve(path, uint32(os.Getuid()), uint32(os.Getgid()), "ram", m.RAM)
	assert.NilError(t, err)
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	args, err := ramfd.Take([]string{"qemu", "-object", `{"qom-type":"memory-backend-ram","id":"pc.ram","size":1048576}`}, []string{ramfd.Variable + "=" + path})
	assert.NilError(t, err)
	_, rest, found := strings.Cut(args[2], `"mem-path":"`)
	assert.Assert(t, found, args[2])
	own, _, _ := strings.Cut(rest, `"`)
	f, err := os.OpenFile(own, os.O_RDWR, 0) // as QEMU does
	assert.NilError(t, err)
	defer f.Close()
	assert.Equal(t, inode(t, f), inode(t, m.RAM))
	assert.NilError(t, passed.Close())
	_, err = os.Stat(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestChecksumAlone: who brings other memory than a checksum's gets nothing, also when the store has that memory.
func TestChecksumAlone(t *testing.T) {
	s := New(t.TempDir(), size)
	files, m := archive(t, stream(1))
	assert.NilError(t, s.Link(t.Context(), files, m, filepath.Join(t.TempDir(), "memory")))
	others, _ := archive(t, stream(2))
	to := filepath.Join(t.TempDir(), "memory")
	assert.ErrorIs(t, s.Link(t.Context(), others, m, to), checkpoint.ErrUnusable)
	_, err := os.Stat(to)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestOutlines: streams of few bytes with large outlines, whose VMs run or wait to be kept, take no more than their
// namespace's part. What no VM uses goes for others, and at once if its VM did not start.
func TestOutlines(t *testing.T) {
	s := New(t.TempDir(), 64<<20)
	// The archive takes some kilobytes.
	start := func(namespace string, content byte) (*Memory, error) {
		files, m := archive(t, append(stream(content), make([]byte, 40<<20)...))
		path := filepath.Join(t.TempDir(), "memory")
		assert.NilError(t, s.Link(t.Context(), files, m, path))
		f, err := os.Open(path)
		assert.NilError(t, err)
		defer f.Close()
		got, err := s.Open(t.Context(), namespace, m, size, f)
		return closing(t, got, err)
	}
	for n := range 3 {
		_, err := start("greedy", byte(n+1))
		assert.NilError(t, err)
	}
	failed, err := start("greedy", 4)
	if !errors.Is(err, ErrNotShared) {
		t.Fatalf("a namespace has %d bytes: %v, %v", s.outlines.Used(), failed, err)
	}
	neighbour, err := start("neighbour", 5)
	assert.NilError(t, err)
	before := s.outlines.Used()
	assert.NilError(t, neighbour.Forget())
	if now := s.outlines.Used(); before-now < 40<<20 {
		t.Errorf("after a failed start %d bytes of %d are left", now, before)
	}
	// Kept for the next VM, but not when it needs the place.
	for n := range 6 {
		m, err := start("other", byte(n+10))
		assert.NilError(t, err)
		assert.NilError(t, m.Close())
	}
	if used := s.outlines.Used(); used > MaxOutlines {
		t.Errorf("%d bytes are kept, and the limit is %d", used, MaxOutlines)
	}
}

// TestOtherFileSystem: containers whose folders are on another file system than the checkpoints' get the memory as a
// separate file, also where the checkpoint's file exists.
func TestOtherFileSystem(t *testing.T) {
	shared, elsewhere := t.TempDir(), memoryFolder(t)
	s := New(filepath.Join(shared, "checkpoints"), size)
	files, m := archive(t, stream('x'))
	for _, to := range []string{
		filepath.Join(elsewhere, "first"), filepath.Join(shared, "linked"), filepath.Join(elsewhere, "second"), filepath.Join(shared, "again"),
	} {
		assert.NilError(t, s.Link(t.Context(), files, m, to))
		f, err := os.Open(to)
		assert.NilError(t, err)
		got, err := s.Open(t.Context(), "default", m, size, f)
		got, err = closing(t, got, err)
		assert.NilError(t, err, to)
		page := make([]byte, 1)
		_, err = got.RAM.ReadAt(page, 4096)
		assert.NilError(t, err)
		assert.Equal(t, string(page), "x")
		assert.NilError(t, f.Close())
	}
	for _, dir := range []string{elsewhere, shared, filepath.Join(shared, "checkpoints")} {
		left, err := filepath.Glob(filepath.Join(dir, "*"+partial))
		assert.NilError(t, err)
		assert.Equal(t, len(left), 0, "%q", left)
	}
}

// memoryFolder returns a folder on another file system than the tests' folders.
func memoryFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nodevirt-test-")
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
	var one, other unix.Stat_t
	assert.NilError(t, unix.Stat(dir, &one))
	assert.NilError(t, unix.Stat(t.TempDir(), &other))
	if one.Dev == other.Dev {
		t.Fatal("/dev/shm and the folder of temporary files are one file system: set TMPDIR to a folder on another one")
	}
	return dir
}

// TestShareOfANamespace: a namespace that has its share gets no more by what others keep.
func TestShareOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t.TempDir(), 4*minShare)
		m, err := open(t, s, stream('x'))
		assert.NilError(t, err)
		assert.NilError(t, m.Close())
		greedy := s.ram.Grant("greedy")
		defer greedy.Release()
		assert.ErrorIs(t, s.grow("greedy", greedy, 2*minShare+1), ErrNotShared)
		assert.Equal(t, len(s.shared), 1)
		assert.NilError(t, s.grow("greedy", greedy, 2*minShare))
		assert.Equal(t, len(s.shared), 1)
		third := s.ram.Grant("third")
		defer third.Release()
		assert.NilError(t, s.grow("third", third, 2*minShare)) // there is not enough for all
		assert.Equal(t, len(s.shared), 0)
	})
}
