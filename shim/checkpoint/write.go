package checkpoint

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

// block is the size of tar's blocks in bytes.
const block = 512

// Writer writes an archive.
type Writer struct {
	file *os.File
	at   int64 // where the next entry begins
}

// NewWriter returns a Writer to an empty file, which stays the caller's.
func NewWriter(f *os.File) *Writer { return &Writer{file: f} }

// AddMemory compresses QEMU's stream into the archive.
func (w *Writer) AddMemory(stream io.Reader) (File, error) { return w.add(memoryName, stream) }

// AddDisk compresses a disk's file into the archive.
func (w *Writer) AddDisk(name string, content io.Reader) (Disk, error) {
	f, err := w.add(diskName(name), content)
	return Disk{name, f}, err
}

// add writes an entry. Its header comes last, when the size is known.
func (w *Writer) add(name string, content io.Reader) (File, error) {
	sum := sha256.New()
	data := &offsetWriter{w.file, w.at + block}
	stored := &counter{}
	pack, err := zstd.NewWriter(io.MultiWriter(data, sum, stored), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return File{}, err
	}
	size, err := io.Copy(pack, content)
	if err != nil {
		_ = pack.Close() // it is incomplete
		return File{}, fmt.Errorf("save %s: %w", name, err)
	}
	if err := pack.Close(); err != nil {
		return File{}, fmt.Errorf("save %s: %w", name, err)
	}
	if err := w.head(name, stored.n); err != nil {
		return File{}, err
	}
	return File{Size: size, Stored: stored.n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// head writes the header of the entry that begins here, and goes on behind the entry.
func (w *Writer) head(name string, size int64) error {
	var b bytes.Buffer
	// GNU's format has any size in one block.
	err := tar.NewWriter(&b).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, Format: tar.FormatGNU})
	if err == nil && b.Len() != block {
		err = fmt.Errorf("its header has %d bytes", b.Len())
	}
	if err == nil {
		_, err = w.file.WriteAt(b.Bytes(), w.at)
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	w.at += block + (size+block-1)/block*block
	return nil
}

// Close writes the manifest and the archive's end, and has all of it written to the disk.
func (w *Writer) Close(m Manifest) error {
	m.Version = Version
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if _, err := decode(data); err != nil {
		return fmt.Errorf("describe the checkpoint: %w", err)
	}
	if _, err := w.file.WriteAt(data, w.at+block); err != nil {
		return err
	}
	if err := w.head(ManifestName, int64(len(data))); err != nil {
		return err
	}
	if err := w.file.Truncate(w.at + 2*block); err != nil { // two empty blocks end an archive
		return err
	}
	return w.file.Sync()
}

// offsetWriter writes on from an offset.
type offsetWriter struct {
	to io.WriterAt
	at int64
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.to.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
