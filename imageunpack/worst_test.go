package imageunpack_test

import (
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// BenchmarkWorstDisk checks the file that is the most work of those that are accepted: with as many
// L2 tables as may be, each entry of which has to be looked at, and as many clusters.
func BenchmarkWorstDisk(b *testing.B) {
	for name, entry := range map[string]uint64{
		"data": 1<<63 | worstData, "compressed": 1<<62 | 1<<55 | worstData, // two clusters to look at
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorst(entry)
			b.ReportAllocs()
			for b.Loop() {
				_, _, err := imageunpack.Inspect(w, worstSize, 16<<40)
				if err != nil {
					b.Fatal(err)
				}
			}
			runtime.KeepAlive(w)
		})
	}
}

const (
	worstCluster = 32 << 10
	worstTables  = 4 << 30 / worstCluster
	worstL1      = worstCluster
	worstCounts  = worstL1 + 8*worstTables
	worstL2      = worstCounts + worstCluster
	worstData    = worstL2 + 4<<30
	worstSize    = 1 << 28 * worstCluster
)

// worst is a sparse file of 8 TiB, whose L2 tables are made as they are read.
type worst struct{ head, table []byte }

func newWorst(entry uint64) worst {
	be := binary.BigEndian
	w := worst{make([]byte, worstL2), make([]byte, 64<<10)}
	copy(w.head, tinyQCOW2("v3")[:104])
	be.PutUint32(w.head[20:], 15)
	be.PutUint64(w.head[24:], 16<<40)
	be.PutUint32(w.head[36:], worstTables)
	be.PutUint64(w.head[40:], worstL1)
	be.PutUint64(w.head[48:], worstCounts)
	for i := range uint64(worstTables) {
		be.PutUint64(w.head[worstL1+8*i:], 1<<63|(worstL2+i*worstCluster))
	}
	for i := 0; i < len(w.table); i += 8 {
		be.PutUint64(w.table[i:], entry)
	}
	return w
}

func (w worst) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case off < worstL2:
		return copy(p, w.head[off:]), nil
	case off < worstData:
		return copy(p, w.table), nil
	}
	return 0, io.EOF
}
