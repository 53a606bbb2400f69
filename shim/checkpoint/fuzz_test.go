package checkpoint_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// FuzzArchive reads any file as an archive. It ends with the content that the manifest describes, or with
// [checkpoint.ErrUnusable].
func FuzzArchive(f *testing.F) {
	path, _ := write(f)
	whole, err := os.ReadFile(path)
	assert.NilError(f, err)
	f.Add(whole)
	f.Add(whole[:len(whole)-2*512])
	f.Fuzz(func(t *testing.T, archive []byte) {
		readAny(t, archive)
	})
}

// FuzzContents reads archives whose checksums are right and whose streams are anything: zstd repeats one byte as
// often as a block's header says.
func FuzzContents(f *testing.F) {
	for _, content := range [][]byte{[]byte("memory"), make([]byte, 1<<20), bytes.Repeat([]byte("ab"), 1<<16)} {
		f.Add(packed(f, content), int64(len(content)), packed(f, content), int64(len(content)))
	}
	// The head of a stream without a checksum, and 128 KiB of one byte.
	repeated := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x03, 0x00, 0x10, 'a'}
	f.Add(repeated, int64(128<<10), bytes.Repeat(repeated, 3), int64(3*128<<10))
	f.Fuzz(func(t *testing.T, memory []byte, memorySize int64, disk []byte, diskSize int64) {
		if memorySize > mostFuzzed || diskSize > mostFuzzed {
			return // it may hold that much
		}
		m := checkpoint.Manifest{
			Version: checkpoint.Version, Shape: json.RawMessage(`{}`), Memory: described(memory, memorySize),
			Disks: []checkpoint.Disk{{Name: "root", File: described(disk, diskSize)}},
		}
		manifest, err := json.Marshal(m)
		assert.NilError(t, err)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, e := range []struct {
			name string
			data []byte
		}{{"nodevirt-memory.zst", memory}, {"nodevirt-disk-root.zst", disk}, {checkpoint.ManifestName, manifest}} {
			assert.NilError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.data)), Mode: 0o600}))
			_, err := w.Write(e.data)
			assert.NilError(t, err)
		}
		assert.NilError(t, w.Close())
		readAny(t, archive.Bytes())
	})
}

// mostFuzzed bounds what the content of a fuzzed archive may be, in bytes.
const mostFuzzed = 4 << 20

// readAny reads an archive as a node does, if its content is not too large.
func readAny(t *testing.T, archive []byte) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar")
	assert.NilError(t, os.WriteFile(path, archive, 0o600))
	m, memory, err := readWithin(t, path)
	if err != nil {
		if !errors.Is(err, checkpoint.ErrUnusable) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
		return
	}
	assert.Equal(t, int64(len(memory)), m.Memory.Size)
	for name, size := range map[string]int64{"memory": m.Memory.Stored, "disk": m.Disks[0].Size} {
		info, err := os.Stat(filepath.Join(dir, name))
		assert.NilError(t, err)
		assert.Equal(t, info.Size(), size, name)
	}
}

// errTooMuch is the end of an archive that may hold more than a test reads.
var errTooMuch = errors.Join(checkpoint.ErrUnusable, errors.New("more than is fuzzed"))

// readWithin reads an archive as a node does, and writes the files memory and disk beside it. It returns the memory's content.
func readWithin(t *testing.T, path string) (m checkpoint.Manifest, content []byte, err error) {
	t.Helper()
	a, err := checkpoint.OpenArchive(path)
	if err != nil {
		return m, nil, err
	}
	defer func() { _ = a.Close() }()
	m, err = checkpoint.Read(a)
	if err != nil {
		return m, nil, err
	}
	if len(m.Disks) != 1 || m.Memory.Size > mostFuzzed || m.Disks[0].Size > mostFuzzed {
		return m, nil, errTooMuch
	}
	memory, err := os.Create(filepath.Join(filepath.Dir(path), "memory"))
	assert.NilError(t, err)
	defer memory.Close()
	if err := checkpoint.CopyMemory(t.Context(), a, m, memory); err != nil {
		return m, nil, err
	}
	_, err = memory.Seek(0, io.SeekStart)
	assert.NilError(t, err)
	stream, err := checkpoint.OpenMemory(memory, m)
	assert.NilError(t, err)
	defer stream.Close()
	if content, err = io.ReadAll(stream); err != nil {
		return m, nil, err
	}
	disk, err := os.Create(filepath.Join(filepath.Dir(path), "disk"))
	assert.NilError(t, err)
	defer disk.Close()
	return m, content, checkpoint.UnpackDisk(t.Context(), a, m.Disks[0], disk)
}

func packed(f *testing.F, content []byte) []byte {
	f.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	assert.NilError(f, err)
	_, err = w.Write(content)
	assert.NilError(f, errors.Join(err, w.Close()))
	return b.Bytes()
}

// described is an entry of a manifest for a file with that data.
func described(data []byte, size int64) checkpoint.File {
	sum := sha256.Sum256(data)
	return checkpoint.File{Size: size, Stored: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}
