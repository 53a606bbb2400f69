package imageunpack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
)

func inspect(b []byte) (imageunpack.Format, int64, error) {
	return imageunpack.Inspect(bytes.NewReader(b), int64(len(b)), 1<<50)
}

// TestInspectQEMUsFiles checks files that qemu-img makes, whole and cut off at the end.
func TestInspectQEMUsFiles(t *testing.T) {
	content := pattern(mib)
	clear(content[200_000:700_000]) // some of it unallocated
	odd := pattern(mib + 3*512)     // ends within a cluster
	for _, test := range []struct {
		name    string
		content []byte
		spare   int // bytes at the file's end that the guest can't read
		args    []string
	}{
		{"default", content, 0, nil},
		{"version 2", content, 0, []string{"-o", "compat=0.10"}},
		{"ends within a cluster", odd, 64<<10 - 3*512, nil},
		{"smallest clusters", content, 0, []string{"-o", "cluster_size=512"}},
		{"largest clusters", odd, mib - 3*512, []string{"-o", "cluster_size=2M"}},
		{"compressed", odd, 0, []string{"-c"}},
		{"compressed, large clusters", content, 0, []string{"-c", "-o", "cluster_size=2M"}},
		{"compressed with zstd", content, 0, []string{"-c", "-o", "compression_type=zstd"}},
		{"subclusters", odd, 2<<10 - 3*512, []string{"-o", "extended_l2=on"}},
		{"preallocated", content, 0, []string{"-o", "preallocation=metadata"}},
		{"lazy refcounts", content, 0, []string{"-o", "lazy_refcounts=on,refcount_bits=64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := qcow2File(t, test.content, test.args...)
			format, size, err := inspect(b)
			if err != nil || format != imageunpack.QCOW2 || size != int64(len(test.content)) {
				t.Fatalf("got %s, %d bytes, error %v", format, size, err)
			}
			if _, _, err := inspect(b[:len(b)-test.spare]); err != nil {
				t.Errorf("without what the guest can't read: %v", err)
			}
			for cut := len(b) - test.spare - 512; cut > len("QFI\xfb"); cut = cut*3/4 - 1 {
				if _, _, err := inspect(b[:cut]); !errors.Is(err, imageunpack.ErrTruncated) {
					t.Errorf("cut to %d of %d bytes: got error %v", cut, len(b), err)
				}
			}
		})
	}
}

func TestInspectInternalSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, qcow2File(t, pattern(mib)), 0o600); err != nil {
		t.Fatal(err)
	}
	qemuTool(t, "qemu-img", "snapshot", "-c", "before", path)
	qemuTool(t, "qemu-io", "-c", "write 0 1M", path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := inspect(b); err != nil {
		t.Error(err)
	}
}

// TestInspectRefusesQEMUsFiles checks files that qemu-img makes and that need something else.
func TestInspectRefusesQEMUsFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	qemuTool(t, "qemu-img", "create", "-q", "-f", "raw", "base", "1M")
	for name, test := range map[string]struct {
		args []string
		want error
	}{
		"backing file":  {[]string{"-f", "qcow2", "-b", "base", "-F", "raw"}, imageunpack.ErrBackingFile},
		"external data": {[]string{"-f", "qcow2", "-o", "data_file=data"}, imageunpack.ErrExternalData},
		"AES": {[]string{"-f", "qcow2", "--object", "secret,id=s,data=x",
			"-o", "encrypt.format=aes,encrypt.key-secret=s"}, imageunpack.ErrEncrypted},
		"qcow":        {[]string{"-f", "qcow"}, imageunpack.ErrForeignFormat},
		"QED":         {[]string{"-f", "qed"}, imageunpack.ErrForeignFormat},
		"vmdk":        {[]string{"-f", "vmdk"}, imageunpack.ErrForeignFormat},
		"vdi":         {[]string{"-f", "vdi"}, imageunpack.ErrForeignFormat},
		"vhdx":        {[]string{"-f", "vhdx"}, imageunpack.ErrForeignFormat},
		"vpc":         {[]string{"-f", "vpc"}, imageunpack.ErrForeignFormat},
		"fixed VHD":   {[]string{"-f", "vpc", "-o", "subformat=fixed"}, imageunpack.ErrForeignFormat},
		"parallels":   {[]string{"-f", "parallels"}, imageunpack.ErrForeignFormat},
		"vmdk's text": {[]string{"-f", "vmdk", "-o", "subformat=monolithicFlat"}, imageunpack.ErrForeignFormat},
	} {
		t.Run(name, func(t *testing.T) {
			file := strings.ReplaceAll(name, " ", "-")
			args := append([]string{"create", "-q"}, test.args...)
			qemuTool(t, "qemu-img", append(args, file, "1M")...)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = inspect(b)
			if !errors.Is(err, test.want) || !errors.Is(err, imageunpack.ErrUnusable) {
				t.Fatalf("got error %v, want %v", err, test.want)
			}
			if !strings.Contains(err.Error(), "qemu-img convert") {
				t.Errorf("error %q has no way out", err)
			}
		})
	}
}

// TestLargestDisk: a disk may have the size that the node permits, and no more.
func TestLargestDisk(t *testing.T) {
	raw := pattern(mib)
	for _, content := range [][]byte{raw, qcow2File(t, raw)} {
		if _, _, err := imageunpack.Inspect(bytes.NewReader(content), int64(len(content)), max(mib, int64(len(content)))); err != nil {
			t.Errorf("the largest disk: %v", err)
		}
		if _, _, err := imageunpack.Inspect(bytes.NewReader(content), int64(len(content)), mib-512); !errors.Is(err, imageunpack.ErrSize) {
			t.Errorf("a larger one: %v", err)
		}
	}
}

func TestInspectOther(t *testing.T) {
	at := func(offset int, magic string) []byte {
		b := make([]byte, 64<<10)
		copy(b[offset:], magic)
		return b
	}
	for _, test := range []struct {
		name    string
		content []byte
		want    error
		says    string
	}{
		{"zeros", at(0, ""), nil, ""},
		{"ISO 9660", at(32<<10, "\x01CD001\x01"), nil, ""},
		{"LUKS", at(0, "LUKS\xba\xbe\x00\x01"), imageunpack.ErrForeignFormat, "LUKS, which is encrypted as a whole; decrypt it with cryptsetup"},
		{"LUKS 2", at(0, "LUKS\xba\xbe\x00\x02"), imageunpack.ErrForeignFormat, "cryptsetup open"},
		{"a partition of LUKS", at(32<<10, "LUKS\xba\xbe\x00\x02"), nil, ""},
		{"VMware's older format", at(0, "COWD"), imageunpack.ErrForeignFormat, "qemu-img convert -f vmdk -O qcow2"},
		{"Android sparse", at(0, "\x3a\xff\x26\xed"), imageunpack.ErrForeignFormat, "simg2img"},
		{"WIM", at(0, "MSWIM\x00\x00\x00"), imageunpack.ErrForeignFormat, "install its system"},
		{"master boot record", at(510, "\x55\xaa"), nil, ""},
		{"one sector", at(0, "")[:512], nil, ""},
		{"gzip", at(0, "\x1f\x8b\x08"), imageunpack.ErrForeignFormat, "gzip; decompress"},
		{"xz", at(0, "\xfd7zXZ\x00"), imageunpack.ErrForeignFormat, "xz; decompress"},
		{"zstd", at(0, "\x28\xb5\x2f\xfd"), imageunpack.ErrForeignFormat, "zstd; decompress"},
		{"tar", at(257, "ustar"), imageunpack.ErrForeignFormat, "OVA"},
		{"gzip of odd size", at(0, "\x1f\x8b\x08")[:777], imageunpack.ErrForeignFormat, "gzip"},
		{"empty", nil, imageunpack.ErrEmpty, "content"},
		{"a byte", []byte("Q"), imageunpack.ErrSize, "512"},
		{"magic alone", []byte("QFI\xfb"), imageunpack.ErrTruncated, "header"},
		{"qcow version 1", at(0, "QFI\xfb\x00\x00\x00\x01"), imageunpack.ErrForeignFormat, "version 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			format, size, err := inspect(test.content)
			if test.want == nil {
				if err != nil || format != imageunpack.Raw || size != int64(len(test.content)) {
					t.Errorf("got %s, %d bytes, error %v", format, size, err)
				}
				return
			}
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got error %v, want %v that says %q", err, test.want, test.says)
			}
		})
	}
}

// TestInspectDamaged changes single fields of a sound file.
func TestInspectDamaged(t *testing.T) {
	sound := qcow2File(t, pattern(mib))
	be := binary.BigEndian
	l1 := be.Uint64(sound[40:])
	l2 := be.Uint64(sound[l1:]) & 0x00fffffffffffe00
	refTable := be.Uint64(sound[48:])
	u32 := func(at, v uint32) func([]byte) { return func(b []byte) { be.PutUint32(b[at:], v) } }
	u64 := func(at, v uint64) func([]byte) { return func(b []byte) { be.PutUint64(b[at:], v) } }
	for _, test := range []struct {
		name   string
		damage func([]byte)
		want   error
	}{
		{"dirty", u64(72, 1), nil},
		{"marked corrupt", u64(72, 2), imageunpack.ErrCorrupt},
		{"external data", u64(72, 4), imageunpack.ErrExternalData},
		{"unknown feature", u64(72, 1<<40), imageunpack.ErrUnsupported},
		{"compression bit alone", u64(72, 8), imageunpack.ErrCorrupt},
		{"compression type alone", u64(104, 1<<56), imageunpack.ErrCorrupt},
		{"compression type", func(b []byte) { u64(72, 8)(b); u64(104, 2<<56)(b) }, imageunpack.ErrUnsupported},
		{"version 0", u32(4, 0), imageunpack.ErrUnsupported},
		{"version 4", u32(4, 4), imageunpack.ErrUnsupported},
		{"backing file", u64(8, 200), imageunpack.ErrBackingFile},
		{"backing file without offset", u32(16, 4), imageunpack.ErrBackingFile},
		{"cluster bits 8", u32(20, 8), imageunpack.ErrCorrupt},
		{"cluster bits 22", u32(20, 22), imageunpack.ErrCorrupt},
		{"cluster bits absurd", u32(20, 1<<31), imageunpack.ErrCorrupt},
		{"no size", u64(24, 0), imageunpack.ErrSize},
		{"odd size", u64(24, mib+1), imageunpack.ErrSize},
		{"negative size", u64(24, 1<<63), imageunpack.ErrSize},
		{"size beyond L1", u64(24, 1<<50), imageunpack.ErrCorrupt},
		{"LUKS", u32(32, 2), imageunpack.ErrEncrypted},
		{"absurd L1", u32(36, 1<<31), imageunpack.ErrCorrupt},
		{"L1 beyond the end", u32(36, 1<<20), imageunpack.ErrTruncated},
		{"L1 nowhere", u64(40, 0), imageunpack.ErrCorrupt},
		{"L1 far away", u64(40, 1<<62), imageunpack.ErrTruncated},
		{"L1 not aligned", u64(40, l1+8), imageunpack.ErrCorrupt},
		{"refcounts far away", u64(48, 1<<62), imageunpack.ErrTruncated},
		{"no refcounts", u32(56, 0), imageunpack.ErrCorrupt},
		{"more than is looked at", func(b []byte) { u32(20, 9)(b); u64(24, 300<<30)(b) }, imageunpack.ErrCorrupt},
		{"absurd refcounts", u32(56, 1<<31), imageunpack.ErrCorrupt},
		{"absurd snapshots", u32(60, 1<<31), imageunpack.ErrCorrupt},
		{"snapshots far away", func(b []byte) { u32(60, 1)(b); u64(64, 1<<62)(b) }, imageunpack.ErrTruncated},
		{"refcount order", u32(96, 7), imageunpack.ErrCorrupt},
		{"short header", u32(100, 100), imageunpack.ErrCorrupt},
		{"long header", u32(100, 1<<31), imageunpack.ErrCorrupt},
		{"L1 is the header", u64(40, 0), imageunpack.ErrCorrupt},
		{"L1 is the refcount table", u64(40, refTable), imageunpack.ErrCorrupt},
		{"refcount table is L1", u64(48, l1), imageunpack.ErrCorrupt},
		{"refcount table is the header", u64(48, 0), imageunpack.ErrCorrupt},
		{"snapshot table is L1", func(b []byte) { u32(60, 1)(b); u64(64, l1)(b) }, imageunpack.ErrCorrupt},
		{"refcount block is its table", u64(refTable, refTable), imageunpack.ErrCorrupt},
		{"refcount block is L1", u64(refTable, l1), imageunpack.ErrCorrupt},
		{"refcount block named twice", u64(refTable+8, be.Uint64(sound[refTable:])), imageunpack.ErrCorrupt},
		{"L2 is L1", u64(l1, l1), imageunpack.ErrCorrupt},
		{"L2 is the refcount table", u64(l1, refTable), imageunpack.ErrCorrupt},
		{"L2 is a refcount block", u64(l1, be.Uint64(sound[refTable:])), imageunpack.ErrCorrupt},
		{"L2 named twice", func(b []byte) { u32(36, 2)(b); u64(l1+8, l2)(b) }, imageunpack.ErrCorrupt},
		{"data is L1", u64(l2, l1), imageunpack.ErrCorrupt},
		{"data is its own L2", u64(l2, l2), imageunpack.ErrCorrupt},
		{"data is the refcount table", u64(l2, refTable), imageunpack.ErrCorrupt},
		{"compressed data in the header", u64(l2, 1<<62), imageunpack.ErrCorrupt},
		{"compressed data in its own L2", u64(l2, 1<<62|l2+512), imageunpack.ErrCorrupt},
		{"compressed data that reaches a table", u64(l2, 1<<62|1<<54|(refTable-512)), imageunpack.ErrCorrupt},
		{"L2 beyond the end", u64(l1, 1<<40), imageunpack.ErrTruncated},
		{"L2 not aligned", u64(l1, l2+512), imageunpack.ErrCorrupt},
		{"refcount block beyond the end", u64(refTable, 1<<40), imageunpack.ErrTruncated},
		{"data beyond the end", u64(l2, 1<<40), imageunpack.ErrTruncated},
		{"data not aligned", u64(l2, l2+512), imageunpack.ErrCorrupt},
		{"zeros beyond the end", u64(l2, 1<<40|1), nil},
		{"compressed data beyond the end", u64(l2, 1<<62|1<<40), imageunpack.ErrTruncated},
		{"backing format", u32(112, 0xe2792aca), imageunpack.ErrBackingFile},
		{"data file's name", u32(112, 0x44415441), imageunpack.ErrExternalData},
		{"LUKS header's place", u32(112, 0x0537be77), imageunpack.ErrEncrypted},
		{"unknown extension", u32(112, 0x12345678), nil},
		{"absurd extension", u32(116, 1<<31), imageunpack.ErrCorrupt},
		{"no end of extensions", func(b []byte) {
			for at := uint32(112); at < 8192; at += 8 {
				u32(at, 0x12345678)(b)
				u32(at+4, 0)(b)
			}
		}, imageunpack.ErrCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := bytes.Clone(sound)
			test.damage(b)
			if _, _, err := inspect(b); !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
		})
	}
}

// TestInspectTime: a small file must not keep us busy by naming one table again and again.
func TestInspectTime(t *testing.T) {
	const entries = 4 << 20 // the longest L1 table
	b := make([]byte, 65536+entries*8+4*65536)
	copy(b, qcow2File(t, pattern(mib))[:65536])
	be := binary.BigEndian
	be.PutUint32(b[20:], 9) // cluster bits
	be.PutUint32(b[36:], entries)
	be.PutUint64(b[40:], 65536)
	be.PutUint64(b[24:], entries<<15)
	be.PutUint64(b[48:], uint64(len(b)-65536)) // an empty refcount table
	table := uint64(len(b) - 2*65536)
	for i := range uint64(entries) {
		be.PutUint64(b[65536+i*8:], table)
	}
	r := &counting{r: bytes.NewReader(b)}
	_, _, err := imageunpack.Inspect(r, int64(len(b)), 1<<55)
	if read := r.bytes.Load(); !errors.Is(err, imageunpack.ErrCorrupt) || read > 2*int64(len(b)) {
		t.Errorf("read %d bytes of a file of %d, error %v", read, len(b), err)
	}
}

// counting counts what is read, by any number of goroutines.
type counting struct {
	r     io.ReaderAt
	bytes atomic.Int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.r.ReadAt(p, off)
}

// failing fails from a position on.
type failing struct {
	r    io.ReaderAt
	from int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.from {
		return 0, io.ErrUnexpectedEOF
	}
	return f.r.ReadAt(p, off)
}

// TestInspectReadError: a failing node's disk is not the image's fault.
func TestInspectReadError(t *testing.T) {
	b := qcow2File(t, pattern(mib))
	for _, from := range []int64{0, 104, 1 << 16, 3 << 16} {
		_, _, err := imageunpack.Inspect(failing{bytes.NewReader(b), from}, int64(len(b)), 1<<50)
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, imageunpack.ErrUnusable) {
			t.Errorf("no read from %d on: got error %v", from, err)
		}
	}
}

func TestSettledOutlivesItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := imageunpack.Settled(ctx, func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		return ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

// tinyQCOW2 is a whole qcow2 file with two data clusters, one of them compressed.
func tinyQCOW2(variant string) []byte {
	be := binary.BigEndian
	bits := uint32(9)
	if variant == "extended" {
		bits = 14
	}
	cluster := uint64(1) << bits
	b := make([]byte, 6*cluster)
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], bits)
	be.PutUint64(b[24:], 2*cluster) // virtual size
	be.PutUint32(b[36:], 1)         // L1 entries
	be.PutUint64(b[40:], cluster)   // L1 table
	be.PutUint64(b[48:], 2*cluster) // refcount table
	be.PutUint32(b[56:], 1)         // its clusters
	be.PutUint64(b[cluster:], 1<<63|3*cluster)
	be.PutUint64(b[2*cluster:], 4*cluster)
	be.PutUint64(b[3*cluster:], 1<<63|5*cluster)
	be.PutUint64(b[3*cluster+8:], 1<<62|5*cluster)
	switch variant {
	case "v2":
		be.PutUint32(b[4:], 2)
	case "extended":
		be.PutUint64(b[72:], 16)
		be.PutUint64(b[3*cluster+8:], 1<<32-1) // all subclusters allocated
		be.PutUint64(b[3*cluster+16:], 1<<62|5*cluster)
		fallthrough
	default:
		be.PutUint32(b[96:], 4)
		be.PutUint32(b[100:], 104)
	}
	return b
}

func TestTinyQCOW2(t *testing.T) {
	for _, variant := range []string{"v2", "v3", "extended"} {
		if format, _, err := inspect(tinyQCOW2(variant)); err != nil || format != imageunpack.QCOW2 {
			t.Errorf("%s: %s, %v", variant, format, err)
		}
	}
}
