package imageunpack_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// worst is the qcow2 file that takes longest to check: all tables as long as they may be, in as
// many clusters as a file may have, and each entry names data far from the one before. It is made
// as it is read.
type worst struct{}

const (
	worstBits       = 12
	worstCluster    = 1 << worstBits
	worstClusters   = 1 << 26
	worstSize       = worstClusters * worstCluster // bytes
	worstBlockCount = 1 << 20                      // refcount blocks
	worstTables     = 1 << 19                      // L2 tables

	// Where its parts begin, in clusters.
	worstL1       = 1
	worstRefTable = worstL1 + worstTables*8/worstCluster
	worstBlocks   = worstRefTable + 8<<20/worstCluster
	worstL2       = worstBlocks + worstBlockCount
	worstData     = worstL2 + worstTables
)

func (worst) ReadAt(p []byte, off int64) (int, error) {
	be := binary.BigEndian
	if off < worstCluster {
		return copy(p, worstHeader()[off:]), nil
	}
	for i := 0; i+8 <= len(p); i += 8 {
		n := uint64(off) + uint64(i)
		var cluster uint64
		switch at := n / worstCluster; {
		case at < worstRefTable:
			cluster = worstL2 + (n-worstL1*worstCluster)/8
		case at < worstBlocks:
			cluster = worstBlocks + (n-worstRefTable*worstCluster)/8
		default:
			cluster = worstData + n*0x9e3779b97f4a7c15>>20%(worstClusters-worstData)
		}
		be.PutUint64(p[i:], cluster*worstCluster)
	}
	return len(p), nil
}

func worstHeader() []byte {
	be := binary.BigEndian
	h := make([]byte, worstCluster)
	copy(h, "QFI\xfb")
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], worstBits)
	be.PutUint64(h[24:], worstTables*worstCluster/8*worstCluster)
	be.PutUint32(h[36:], worstTables)
	be.PutUint64(h[40:], worstL1*worstCluster)
	be.PutUint64(h[48:], worstRefTable*worstCluster)
	be.PutUint32(h[56:], 8<<20/worstCluster)
	be.PutUint32(h[96:], 4)
	be.PutUint32(h[100:], 104)
	return h
}

// BenchmarkWorstDisk is what docs/image.md calls the worst case. The file's own reading comes on
// top: some 2 GiB.
func BenchmarkWorstDisk(b *testing.B) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		format, size, err := imageunpack.Inspect(worst{}, worstSize, 1<<50)
		if err != nil || format != imageunpack.QCOW2 || size != 1<<40 {
			b.Fatalf("%s of %d bytes, %v", format, size, err)
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/(1<<20), "MiB/op")
}

// BenchmarkWorstDiskMade is the part of BenchmarkWorstDisk that makes what is read.
func BenchmarkWorstDiskMade(b *testing.B) {
	buf := make([]byte, 64<<10)
	for b.Loop() {
		for off := int64(worstL2 * worstCluster); off < worstData*worstCluster; off += int64(len(buf)) {
			if _, err := (worst{}).ReadAt(buf, off); err != nil {
				b.Fatal(err)
			}
		}
	}
}
