package checkpoint_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// content is a disk's: data, zeros and data.
func content() []byte {
	return append(append(bytes.Repeat([]byte("written "), 9000), make([]byte, 256<<10)...), "end"...)
}

// write writes an archive with memory and one disk.
func write(t testing.TB) (path string, m checkpoint.Manifest) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "checkpoint.tar")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	m.Image, m.Shape = "sha256:1", json.RawMessage(`{}`)
	m.Memory, err = w.AddMemory(strings.NewReader("memory"))
	assert.NilError(t, err)
	d, err := w.AddDisk("root", bytes.NewReader(content()))
	assert.NilError(t, err)
	m.Disks = []checkpoint.Disk{d}
	assert.NilError(t, w.Close(m))
	return path, m
}

// read reads all of an archive as a node does.
func read(t *testing.T, path string) (memory, disk string, err error) {
	t.Helper()
	_, content, err := readWithin(t, path)
	if err != nil {
		return "", "", err
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(path), "disk"))
	assert.NilError(t, err)
	return string(content), string(data), nil
}

func TestRoundTrip(t *testing.T) {
	path, _ := write(t)
	memory, disk, err := read(t, path)
	assert.NilError(t, err)
	assert.Equal(t, memory, "memory")
	assert.Assert(t, disk == string(content()))
	// Other programs read it, too.
	out, err := exec.CommandContext(t.Context(), "tar", "-tf", path).CombinedOutput()
	assert.NilError(t, err, string(out))
	assert.Equal(t, string(out), "nodevirt-memory.zst\nnodevirt-disk-root.zst\nnodevirt-checkpoint.json\n")
}

// TestDamage: no archive that was cut off or changed is read to its end.
func TestDamage(t *testing.T) {
	path, _ := write(t)
	whole, err := os.ReadFile(path)
	assert.NilError(t, err)
	end := bytes.LastIndexByte(whole, '}')
	damaged := filepath.Join(t.TempDir(), "damaged.tar")
	for n := 0; n < end; n += 7 { // no power of two, which would be the same place of each block
		assert.NilError(t, os.WriteFile(damaged, whole[:n], 0o600))
		if _, _, err := read(t, damaged); err == nil {
			t.Fatalf("an archive of %d bytes, of which %d are left", len(whole), n)
		}
		changed := bytes.Clone(whole)
		changed[n] ^= 0x20
		assert.NilError(t, os.WriteFile(damaged, changed, 0o600))
		memory, disk, err := read(t, damaged)
		if err == nil && (memory != "memory" || disk != string(content())) {
			t.Fatalf("byte %d changed, and the content is another", n)
		}
		if n > 3*512 && n < 3*512+16 && !errors.Is(err, checkpoint.ErrUnusable) {
			t.Errorf("byte %d of a disk changed: %v", n, err)
		}
	}
}

// TestHostile: an archive can't name other files than its own, nor have what is no file.
func TestHostile(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"link":   {Typeflag: tar.TypeSymlink, Name: checkpoint.ManifestName, Linkname: "/etc/passwd"},
		"folder": {Typeflag: tar.TypeDir, Name: "nodevirt-folder"},
		"device": {Typeflag: tar.TypeChar, Name: "nodevirt-memory.zst"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.tar")
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			assert.NilError(t, w.WriteHeader(&h))
			assert.NilError(t, w.Close())
			assert.NilError(t, os.WriteFile(path, b.Bytes(), 0o600))
			_, err := checkpoint.OpenArchive(path)
			assert.ErrorIs(t, err, checkpoint.ErrUnusable)
		})
	}
	_, err := checkpoint.OpenArchive("/dev/zero")
	assert.ErrorIs(t, err, checkpoint.ErrUnusable)
}

func TestManifests(t *testing.T) {
	_, good := write(t)
	good.Version = checkpoint.Version
	for name, change := range map[string]func(*checkpoint.Manifest){
		"version":   func(m *checkpoint.Manifest) { m.Version = 2 },
		"size":      func(m *checkpoint.Manifest) { m.Memory.Size = 1 << 50 },
		"work":      func(m *checkpoint.Manifest) { m.Disks[0].Size = 17 << 30 },
		"stored":    func(m *checkpoint.Manifest) { m.Disks[0].Stored = m.Disks[0].Size + 1<<20 },
		"negative":  func(m *checkpoint.Manifest) { m.Memory.Stored = -1 },
		"checksum":  func(m *checkpoint.Manifest) { m.Memory.SHA256 = "x" },
		"path":      func(m *checkpoint.Manifest) { m.Disks[0].Name = "../../etc" },
		"twice":     func(m *checkpoint.Manifest) { m.Disks = append(m.Disks, m.Disks[0]) },
		"base":      func(m *checkpoint.Manifest) { m.Bases = map[string]checkpoint.Base{"root": {Image: "x"}} },
		"many":      func(m *checkpoint.Manifest) { m.Disks = make([]checkpoint.Disk, 1000) },
		"too large": func(m *checkpoint.Manifest) { m.CPU = strings.Repeat("x", 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			m.Disks = append([]checkpoint.Disk(nil), good.Disks...)
			change(&m)
			data, err := json.Marshal(m)
			assert.NilError(t, err)
			_, err = checkpoint.Read(checkpoint.Folder(fs.ErrInvalid, func(string) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(data)), nil
			}))
			assert.ErrorIs(t, err, checkpoint.ErrUnusable)
		})
	}
	_, err := checkpoint.Read(checkpoint.Folder(fs.ErrInvalid, func(string) (io.ReadCloser, error) { return nil, fs.ErrInvalid }))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// TestBomb: little data that expands to much more than the manifest says is not expanded.
func TestBomb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb.tar")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	d, err := w.AddDisk("root", io.LimitReader(zeros{}, 256<<20))
	assert.NilError(t, err)
	memory, err := w.AddMemory(strings.NewReader("m"))
	assert.NilError(t, err)
	d.Size = 4096
	assert.NilError(t, w.Close(checkpoint.Manifest{Shape: json.RawMessage(`{}`), Memory: memory, Disks: []checkpoint.Disk{d}}))
	_, _, err = read(t, path)
	assert.ErrorIs(t, err, checkpoint.ErrUnusable)
	assert.ErrorContains(t, err, "longer than")
}

// TestFew: a disk of few bytes does not become many before the promised ones are there, and no promise is believed that
// the file does not keep.
func TestFew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "few.tar")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	const size = 1 << 30
	d, err := w.AddDisk("root", io.LimitReader(ones{}, size))
	assert.NilError(t, err)
	memory, err := w.AddMemory(strings.NewReader("m"))
	assert.NilError(t, err)
	good := d
	d.Stored = size / 50
	assert.NilError(t, w.Close(checkpoint.Manifest{Shape: json.RawMessage(`{}`), Memory: memory, Disks: []checkpoint.Disk{d}}))
	a, err := checkpoint.OpenArchive(path)
	assert.NilError(t, err)
	defer func() { assert.NilError(t, a.Close()) }()
	m, err := checkpoint.Read(a)
	assert.NilError(t, err)
	assert.ErrorIs(t, m.CheckSizes(a), checkpoint.ErrUnusable)
	m.Disks[0] = good
	assert.NilError(t, m.CheckSizes(a))
	m.Disks = append(m.Disks, checkpoint.Disk{Name: "missing", File: good.File})
	assert.ErrorIs(t, m.CheckSizes(a), checkpoint.ErrUnusable)

	to, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	assert.NilError(t, err)
	defer to.Close()
	compressed, err := a.Open("nodevirt-disk-root.zst")
	assert.NilError(t, err)
	defer compressed.Close()
	assert.ErrorIs(t, checkpoint.ExpandDisk(compressed, size, 1<<20, to), checkpoint.ErrUnusable)
	info, err := to.Stat()
	assert.NilError(t, err)
	if most := 1<<20 + 100*good.Stored; info.Size() > most {
		t.Errorf("%d bytes were written, at most %d are allowed", info.Size(), most)
	}
}

// TestSparse: zeros that are not written count for nothing, so that a disk's content may be at its end. They pay for nothing
// either.
func TestSparse(t *testing.T) {
	const empty, extra = 512 << 20, 1 << 20
	dense := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(dense)
	for name, c := range map[string]struct {
		end  io.Reader
		size int64
		ok   bool
	}{
		"dense": {bytes.NewReader(dense), int64(len(dense)), true},
		"bomb":  {io.LimitReader(ones{}, 64<<20), 64 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "sparse.tar"))
			assert.NilError(t, err)
			d, err := checkpoint.NewWriter(f).AddDisk("root", io.MultiReader(io.LimitReader(zeros{}, empty), c.end))
			assert.NilError(t, err)
			compressed := io.NewSectionReader(f, 512, d.Stored) // behind tar's header
			to, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			assert.NilError(t, err)
			defer to.Close()
			err = checkpoint.ExpandDisk(compressed, empty+c.size, extra, to)
			var used unix.Stat_t
			assert.NilError(t, unix.Fstat(int(to.Fd()), &used))
			if most := extra + 100*d.Stored; used.Blocks*512 > most {
				t.Errorf("%d bytes were written, at most %d are allowed", used.Blocks*512, most)
			}
			if !c.ok {
				assert.ErrorIs(t, err, checkpoint.ErrUnusable)
				return
			}
			assert.NilError(t, err)
			got := make([]byte, len(dense))
			_, err = to.ReadAt(got, empty)
			assert.NilError(t, err)
			if !bytes.Equal(got, dense) || used.Size != empty+c.size {
				t.Errorf("the content of %d bytes differs", used.Size)
			}
		})
	}
}

// TestExtra: the disks of a checkpoint share what they may have beyond their files.
func TestExtra(t *testing.T) {
	file := func(size, stored int64) checkpoint.File { return checkpoint.File{Size: size, Stored: stored} }
	m := checkpoint.Manifest{Memory: file(8<<30, 1<<20), Disks: []checkpoint.Disk{
		{Name: "a", File: file(10<<30, 0)}, {Name: "b", File: file(6<<30, 0)}, {Name: "c", File: file(4<<30, 1<<30)}, {Name: "d", File: file(1, 1)},
	}}
	for name, want := range map[string]int64{"a": 16<<30 + 100<<20, "b": 6<<30 + 100<<20, "c": 1 << 30, "d": 96<<30 + 100<<20} {
		if got := m.Extra(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
