package ramstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// stream builds a stream as QEMU writes it.
type stream struct{ bytes.Buffer }

func (s *stream) u32(all ...uint32) *stream {
	for _, n := range all {
		s.Write(binary.BigEndian.AppendUint32(nil, n))
	}
	return s
}

func (s *stream) u64(n uint64) *stream {
	s.Write(binary.BigEndian.AppendUint64(nil, n))
	return s
}

func (s *stream) name(text string) *stream {
	s.WriteByte(byte(len(text)))
	s.WriteString(text)
	return s
}

func (s *stream) kind(k byte) *stream {
	s.WriteByte(k)
	return s
}

func (s *stream) footer() *stream { return s.kind(sectionFooter).u32(2) }

// begun returns a stream up to the list of blocks of RAM, which have total bytes together.
func begun(total uint64) *stream {
	s := (&stream{}).u32(magic, version).kind(sectionConfiguration).u32(3)
	s.WriteString("q35")
	return s.kind(sectionStart).u32(2).name("ram").u32(0, ramVersion).u64(total | flagSizes)
}

// head writes all up to the pages: RAM of four pages, and ROM of one.
func (s *stream) head() *stream {
	s.Write(begun(5 * pageSize).Bytes())
	s.name("pc.ram").u64(4 * pageSize).name("pc.rom").u64(pageSize)
	return s.u64(flagEnd).footer()
}

func (s *stream) page(n, set uint64, block string, content byte) *stream {
	s.u64(n*pageSize | set)
	if set&flagSame == 0 {
		s.name(block)
	}
	if set&flagZero != 0 {
		return s.kind(content)
	}
	s.Write(bytes.Repeat([]byte{content}, pageSize))
	return s
}

func (s *stream) part() *stream { return s.kind(sectionPart).u32(2) }
func (s *stream) end() *stream  { return s.kind(sectionEnd).u32(2) }
func (s *stream) devices() *stream {
	s.kind(sectionFull)
	s.WriteString("all devices")
	return s
}

// ram is a file for pages.
func ram(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "ram"))
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	assert.NilError(t, f.Truncate(4*pageSize))
	return f
}

func TestSplit(t *testing.T) {
	in := (&stream{}).head()
	in.kind(sectionCommand).u32(1<<16 | 2)
	in.WriteString("ok")
	in.part().page(0, flagPage, "pc.ram", 'a').page(1, flagPage|flagSame, "", 'b').page(2, flagZero|flagSame, "", 0)
	in.page(0, flagPage, "pc.rom", 'r').page(3, flagPage, "pc.ram", 'd').u64(flagEnd).footer()
	in.end().page(1, flagZero, "pc.ram", 0).page(2, flagZero|flagSame, "", 'x').page(0, flagZero, "pc.rom", 0).u64(flagEnd).footer().devices()
	want := (&stream{}).head()
	want.kind(sectionCommand).u32(1<<16 | 2)
	want.WriteString("ok")
	want.part().page(0, flagPage, "pc.rom", 'r').u64(flagEnd).footer()
	want.end().page(0, flagZero, "pc.rom", 0).u64(flagEnd).footer().devices()

	f := ram(t)
	var rest bytes.Buffer
	assert.NilError(t, Split(in, []string{"pc.ram", "ram-node0"}, 4*pageSize, f, &rest))
	assert.Assert(t, bytes.Equal(rest.Bytes(), want.Bytes()), "%q", rest.Bytes())
	got, err := os.ReadFile(f.Name())
	assert.NilError(t, err)
	for n, content := range []byte{'a', 0, 'x', 'd'} {
		if !bytes.Equal(got[n*pageSize:][:pageSize], bytes.Repeat([]byte{content}, pageSize)) {
			t.Errorf("page %d has %q", n, got[n*pageSize])
		}
	}
}

// TestNodeRAM: the RAM of a guest that can get more has another name.
func TestNodeRAM(t *testing.T) {
	in := begun(4 * pageSize).name("ram-node0").u64(4 * pageSize).u64(flagEnd).footer()
	in.part().page(1, flagPage, "ram-node0", 'a').u64(flagEnd).footer().end().u64(flagEnd).footer().devices()
	f := ram(t)
	var rest bytes.Buffer
	assert.NilError(t, Split(in, []string{"pc.ram", "ram-node0"}, 4*pageSize, f, &rest))
	got, err := os.ReadFile(f.Name())
	assert.NilError(t, err)
	assert.Assert(t, got[pageSize] == 'a' && !bytes.Contains(rest.Bytes(), []byte("aaaa")))
}

func TestUnsupported(t *testing.T) {
	all := map[string]*stream{
		"empty":            {},
		"no stream":        (&stream{}).u32(1, 2),
		"no end":           (&stream{}).head(),
		"cut off":          (&stream{}).head().part().u64(flagPage),
		"a page behind it": (&stream{}).head().part().page(4, flagPage, "pc.ram", 'x'),
		"far behind it":    (&stream{}).head().part().page(1<<51, flagPage, "pc.ram", 'x'),
		"compressed":       (&stream{}).head().part().u64(0x40),
		"another section":  (&stream{}).head().kind(sectionStart).u32(3).name("dirty-bitmap").u32(0, 1),
		"RAM twice":        (&stream{}).head().kind(sectionStart).u32(3).name("ram").u32(0, ramVersion),
		"another part":     (&stream{}).head().kind(sectionPart).u32(9),
		"only devices":     (&stream{}).u32(magic, version).devices(),
		"a long machine":   (&stream{}).u32(magic, version).kind(sectionConfiguration).u32(1 << 30),
		"more settings":    (&stream{}).u32(magic, version).kind(sectionConfiguration).u32(0).kind(5),
		"another size": (&stream{}).u32(magic, version).kind(sectionStart).u32(2).name("ram").u32(0, ramVersion).
			u64(pageSize | flagSizes).name("pc.ram").u64(pageSize),
		"two guests' RAM": begun(8 * pageSize).name("pc.ram").u64(4 * pageSize).name("ram-node0").u64(4 * pageSize).u64(flagEnd).footer().
			end().u64(flagEnd).footer().devices(),
		"blocks without end": (&stream{}).u32(magic, version).kind(sectionStart).u32(2).name("ram").u32(0, ramVersion).
			u64(pageSize | flagSizes).name("pc.ram").u64(2 * pageSize),
	}
	for name, in := range all {
		if err := Split(in, []string{"pc.ram", "ram-node0"}, 4*pageSize, ram(t), &bytes.Buffer{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSplit: no stream makes Split panic, or write outside RAM.
func FuzzSplit(f *testing.F) {
	f.Add((&stream{}).head().part().page(0, flagPage, "pc.ram", 'a').u64(flagEnd).footer().end().u64(flagEnd).footer().devices().Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		r := ram(t)
		if err := Split(bytes.NewReader(in), []string{"pc.ram", "ram-node0"}, 4*pageSize, r, &bytes.Buffer{}); err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("%v", err)
		}
		info, err := r.Stat()
		assert.NilError(t, err)
		assert.Equal(t, info.Size(), int64(4*pageSize))
	})
}

// writes counts what is written.
type writes struct{ bytes int }

func (w *writes) WriteAt(p []byte, _ int64) (int, error) {
	w.bytes += len(p)
	return len(p), nil
}

// TestRewrites: records of nine bytes that fill the same pages again and again end the reading.
func TestRewrites(t *testing.T) {
	s := new(stream).head().part().page(1, flagZero, "pc.ram", 1)
	const records = 10_000
	for n := range uint64(records) {
		s.page(n%4, flagZero|flagSame, "", byte(n+1))
	}
	s.u64(flagEnd).footer().end().u64(flagEnd).footer().devices()
	var w writes
	if err := Split(&s.Buffer, []string{"pc.ram", "ram-node0"}, 4*pageSize, &w, io.Discard); !errors.Is(err, ErrFormat) {
		t.Errorf("%v", err)
	}
	if most := rewrites * 5 * pageSize; w.bytes > most {
		t.Errorf("%d bytes were written for RAM of %d", w.bytes, 4*pageSize)
	}
}
