package imageunpack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
)

// FuzzInspect checks files of any bytes.
func FuzzInspect(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(make([]byte, 512))
	f.Add([]byte("KDMV" + strings.Repeat("\x00", 508)))
	for _, seed := range []string{"v2", "v3", "extended"} {
		f.Add(tinyQCOW2(seed))
	}
	for _, seed := range smallHostileDisks(f) {
		f.Add(seed)
	}
	f.Fuzz(checkInspection)
}

// smallHostileDisks are those that a fuzzer changes fast.
func smallHostileDisks(f *testing.F) (small [][]byte) {
	f.Helper()
	if needs.Unit() {
		return nil // QEMU makes them
	}
	disks, err := guest.HostileDisks(f.Context(), f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range disks {
		b, err := os.ReadFile(d.Path)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) <= 8<<10 {
			small = append(small, b)
		}
	}
	return small
}

// FuzzTables checks files whose header is sound and whose tables say anything. It is much faster
// than FuzzInspect at making tables that lie within the file, but share clusters or name themselves.
func FuzzTables(f *testing.F) {
	f.Add(false, []byte(nil))
	f.Add(true, []byte(nil))
	f.Fuzz(func(t *testing.T, extended bool, patches []byte) {
		b := tablesQCOW2(extended)
		patch(b, patches)
		checkInspection(t, b)
	})
}

// checkInspection inspects a file, and whether the verdict can be true.
func checkInspection(t *testing.T, b []byte) {
	t.Helper()
	r := &counting{r: bytes.NewReader(b)}
	format, size, err := imageunpack.Inspect(r, int64(len(b)), 1<<50)
	switch {
	case err != nil && !errors.Is(err, imageunpack.ErrUnusable):
		t.Errorf("an error that isn't the file's: %v", err)
	case err != nil && len(err.Error()) > 1000:
		t.Errorf("an error of %d bytes: %.200q", len(err.Error()), err)
	case err == nil && (size <= 0 || size%512 != 0):
		t.Errorf("accepted a virtual size of %d", size)
	case err == nil && format == imageunpack.Raw && size != int64(len(b)):
		t.Errorf("a raw disk of %d bytes in %d", size, len(b))
	case err == nil && format == imageunpack.QCOW2:
		q := newQCOW2Judge(b)
		q.judge()
		for _, fault := range q.faults {
			t.Error(fault)
		}
	}
	// Each table is read twice at the most, and the header's extensions by eight bytes.
	if most := 2*int64(len(b)) + 2<<10; bytes.HasPrefix(b, []byte("QFI\xfb")) && r.bytes.Load() > most {
		t.Errorf("read %d bytes of %d", r.bytes.Load(), len(b))
	}
}

// The clusters of tablesQCOW2.
const (
	tablesL1 = iota + 1
	tablesRefcounts
	tablesBlock
	tablesL2
	tablesData     = tablesL2 + 3
	tablesClusters = tablesData + 5
)

// tablesQCOW2 is a sound file with three L2 tables, of whose L1 table the last entry is free.
func tablesQCOW2(extended bool) []byte {
	b := tinyQCOW2("v3")
	bits, entry := uint32(9), 8
	if extended {
		b = tinyQCOW2("extended")
		bits, entry = 14, 16
	}
	cluster := uint64(1) << bits
	header := bytes.Clone(b[:104])
	b = make([]byte, tablesClusters*cluster)
	copy(b, header)
	be := binary.BigEndian
	be.PutUint64(b[24:], 3*cluster/uint64(entry)*cluster)
	be.PutUint32(b[36:], 4)
	be.PutUint64(b[tablesRefcounts*cluster:], tablesBlock*cluster)
	for i := range uint64(3) {
		table := (tablesL2 + i) * cluster
		be.PutUint64(b[tablesL1*cluster+8*i:], 1<<63|table)
		be.PutUint64(b[table:], 1<<63|(tablesData+i)*cluster)
		be.PutUint64(b[table+uint64(entry):], 1<<62|(tablesData+3)*cluster)
		if extended {
			be.PutUint64(b[table+8:], 1<<32-1)
		}
	}
	return b
}

// patch writes entries into a file's tables. Each patch has five bytes: the table's cluster, the
// entry in it, and of what is written there the highest byte, the cluster that it names and the
// lowest byte.
func patch(b, patches []byte) {
	cluster := len(b) / tablesClusters
	for ; len(patches) >= 5; patches = patches[5:] {
		at := (tablesL1+int(patches[0])%(tablesClusters-tablesL1))*cluster + 8*(int(patches[1])%(cluster/8))
		named := uint64(patches[3]) * uint64(cluster)
		binary.BigEndian.PutUint64(b[at:], uint64(patches[2])<<56|named|uint64(patches[4]))
	}
}

func TestTablesQCOW2(t *testing.T) {
	for _, extended := range []bool{false, true} {
		b := tablesQCOW2(extended)
		if format, _, err := inspect(b); err != nil || format != imageunpack.QCOW2 {
			t.Errorf("extended %t: %s, %v", extended, format, err)
		}
		patch(b, []byte{tablesL2 - tablesL1, 0, 0x80, tablesL1, 0}) // data in the L1 table
		if _, _, err := inspect(b); !errors.Is(err, imageunpack.ErrCorrupt) {
			t.Errorf("extended %t, patched: %v", extended, err)
		}
		q := newQCOW2Judge(b)
		if q.judge(); len(q.faults) != 1 {
			t.Errorf("the judge finds %q", q.faults)
		}
	}
}
