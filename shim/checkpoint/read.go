package checkpoint

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// window is the largest distance, in bytes, of what zstd repeats. A reader needs memory for it.
	window = 4 << 20
	// maxEntries bounds the files of an archive that are looked at.
	maxEntries = maxDisks + 8
)

// Archive is an archive to read.
type Archive struct {
	file    *os.File
	entries map[string]*io.SectionReader
}

// OpenArchive opens an archive. [Archive.Close] closes it.
func OpenArchive(path string) (*Archive, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrUnusable, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return ReadArchive(f)
}

// ReadArchive reads an archive from a file, which [Archive.Close] closes. If it fails, it closes
// the file.
func ReadArchive(f *os.File) (*Archive, error) {
	a := &Archive{file: f, entries: map[string]*io.SectionReader{}}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err == nil {
		err = a.scan(info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrUnusable, f.Name(), err), f.Close())
	}
	return a, nil
}

// scan finds the entries of a checkpoint in a file of so many bytes. It reads headers alone, and skips what is not of this
// format: the archive can be of another program.
func (a *Archive) scan(size int64) error {
	r := tar.NewReader(a.file)
	for range maxEntries {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := a.file.Seek(0, io.SeekCurrent) // a tar.Reader reads no byte ahead
		if err != nil {
			return err
		}
		if h.Size > size-at {
			return fmt.Errorf("entry %.80q ends behind the archive's end", h.Name)
		}
		if !strings.HasPrefix(h.Name, prefix) {
			continue
		}
		if h.Typeflag != tar.TypeReg || a.entries[h.Name] != nil {
			return fmt.Errorf("entry %.80q is no file, or comes twice", h.Name)
		}
		a.entries[h.Name] = io.NewSectionReader(a.file, at, h.Size)
	}
	return nil
}

// Open implements Files.
func (a *Archive) Open(name string) (io.ReadCloser, error) {
	e := a.entries[name]
	if e == nil {
		return nil, fmt.Errorf("%s in %s: %w", name, a.file.Name(), fs.ErrNotExist)
	}
	return entry{io.NewSectionReader(e, 0, e.Size())}, nil
}

// entry is an open file of an archive, which needs no end.
type entry struct{ *io.SectionReader }

func (entry) Close() error { return nil }

// Close closes the archive.
func (a *Archive) Close() error { return a.file.Close() }

// CopyMemory writes the guest's memory, compressed, to a file, and compares its checksum.
// [OpenMemory] reads the result.
func CopyMemory(ctx context.Context, files Files, m Manifest, to io.Writer) error {
	return stored(ctx, files, memoryName, m.Memory, func(r io.Reader) error {
		_, err := io.Copy(to, r)
		return err
	})
}

// UnpackDisk writes a disk's file to an empty file, with holes in place of zeros, and compares
// its checksum.
func UnpackDisk(ctx context.Context, files Files, d Disk, to *os.File) error {
	return PassDisk(ctx, files, d, func(compressed io.Reader) error { return ExpandDisk(compressed, d.Size, d.Size, to) })
}

// PassDisk has use read a disk's compressed file, and compares the checksum of what there is to read.
func PassDisk(ctx context.Context, files Files, d Disk, use func(compressed io.Reader) error) error {
	return stored(ctx, files, diskName(d.Name), d.File, use)
}

// ExpandDisk decompresses size bytes to an empty file, with holes in place of zeros. It ends at the first byte, of those that
// it would write, beyond workRatio for each that it has read, and extra, of [Manifest.Extra]. Zeros cost no space, and no
// more time than [Read] has allowed for the size.
func ExpandDisk(compressed io.Reader, size, extra int64, to *os.File) error {
	content, err := unpack(compressed, size)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // it was read
	return sparse(to, content, func(written int64) error {
		if written <= extra+workRatio*content.in.n {
			return nil
		}
		return fmt.Errorf("%w: its first %d bytes hold too many: fill free blocks of the guest's disks with zeros", ErrUnusable, content.in.n)
	})
}

// stored has use read a file of a checkpoint, whose checksum it compares then.
func stored(ctx context.Context, files Files, name string, f File, use func(io.Reader) error) error {
	src, err := open(files, name)
	if err != nil {
		return err
	}
	defer src.Close()
	r := &summed{from: Within(ctx, io.LimitReader(src, f.Stored+1)), sum: sha256.New()}
	if err := use(r); err != nil && r.err != nil {
		return fmt.Errorf("read %s: %w", name, r.err)
	} else if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if r.n != f.Stored || hex.EncodeToString(r.sum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: the checksum of %s differs from the one in %s: copy the checkpoint again", ErrUnusable, name, ManifestName)
	}
	return nil
}

func open(files Files, name string) (io.ReadCloser, error) {
	f, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is missing", ErrUnusable, name)
	}
	return f, err
}

// summed is a reader that makes the checksum of what is read.
type summed struct {
	from io.Reader
	sum  hash.Hash
	n    int64
	err  error // of from
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.sum.Write(p[:n])
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Within returns a reader until a context ends.
func Within(ctx context.Context, from io.Reader) io.Reader { return within{ctx, from} }

type within struct {
	ctx  context.Context //nolint:containedctx // of the one call that reads
	from io.Reader
}

func (w within) Read(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.from.Read(p)
}

// OpenMemory returns QEMU's stream of a file that [CopyMemory] wrote. Reading fails with
// [ErrUnusable] if the stream is not as long as the manifest says.
func OpenMemory(f *os.File, m Manifest) (io.ReadCloser, error) {
	return unpack(f, m.Memory.Size)
}

// unpack decompresses size bytes.
func unpack(r io.Reader, size int64) (*exact, error) {
	in := &counted{from: r}
	d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(window), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &exact{from: d, in: in, left: size}, nil
}

// counted is a reader that counts.
type counted struct {
	from io.Reader
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// exact is a reader of a known number of bytes.
type exact struct {
	from *zstd.Decoder
	in   *counted
	left int64
	err  error // the end
}

func (e *exact) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if int64(len(p)) > e.left+1 {
		p = p[:e.left+1]
	}
	n, err := e.from.Read(p)
	e.left -= int64(n)
	switch {
	case e.left < 0:
		n, err = n-1, fmt.Errorf("%w: its content is longer than %s says", ErrUnusable, ManifestName)
	case errors.Is(err, io.EOF) && e.left > 0:
		err = fmt.Errorf("%w: its content is %d bytes shorter than %s says", ErrUnusable, e.left, ManifestName)
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	e.err = err
	return n, err
}

func (e *exact) Close() error {
	e.from.Close()
	return nil
}

// sparse copies to an empty file, and leaves holes in place of zeros. It asks allowed before each write, with the number of
// bytes that are written then.
func sparse(to *os.File, from io.Reader, allowed func(written int64) error) error {
	b, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	var at, written int64
	for {
		n, err := io.ReadFull(from, b)
		if errors.Is(err, ErrUnusable) { // also of a frame that is cut off, whose error is an unexpected EOF
			return err
		}
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			written += int64(n)
			if err := allowed(written); err != nil {
				return err
			}
			if _, err := to.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return to.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}
