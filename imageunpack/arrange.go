package imageunpack

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
)

// maxHead is the most that the tables of an arranged file take, in bytes, which are kept in memory: those of a disk of
// 256 GiB in clusters of 64 KiB.
const maxHead = 32 << 20

// Arranged is a qcow2 file with its tables before its data:
//
//	header │ table of reference counts │ their blocks │ L1 table │ L2 tables │ data
//
// QEMU writes a table beside the data that it was made for, 512 MiB from the next one. A node that fetches a file
// as it is read then fetches a piece for each table, before the guest starts. The data keep their order; clusters
// that the guest cannot read are left out.
type Arranged struct {
	r    io.ReaderAt
	head []byte
	runs []run
}

// run is a part of the original file, in bytes.
type run struct{ offset, length int64 }

// Arrange returns a file of size bytes, which has passed [Check] and stays in use, in that order. It is not ok if the
// file has to stay as it is: it is raw, has snapshots, or tables that take too much memory.
func Arrange(r io.ReaderAt, size int64) (a *Arranged, ok bool, err error) {
	if is, err := isQCOW2(r, size); err != nil || !is {
		return nil, false, err
	}
	h, err := readHeader(r, size)
	if err != nil || h.snapshots > 0 {
		return nil, false, err
	}
	w := arranger{tables: tables{qcow2Header: h, r: r, fileSize: size}}
	if ok, err = w.find(); err != nil || !ok {
		return nil, false, err
	}
	head, err := w.head()
	return &Arranged{r, head, w.runs()}, err == nil, err
}

// Size is the length of the file in bytes.
func (a *Arranged) Size() int64 {
	size := int64(len(a.head))
	for _, one := range a.runs {
		size += one.length
	}
	return size
}

// Reader reads the file.
func (a *Arranged) Reader() io.Reader {
	parts := []io.Reader{bytes.NewReader(a.head)}
	for _, one := range a.runs {
		parts = append(parts, io.NewSectionReader(a.r, one.offset, one.length))
	}
	return io.MultiReader(parts...)
}

// arranger makes an [Arranged] file. Numbers are of clusters, unless their names say another unit.
type arranger struct {
	tables
	// counts has the number of references to each cluster of the original file by data, and places has its
	// new place.
	counts []uint16
	places []uint32
	// The tables follow each other in this order, after the header.
	refTable, refBlocks, l1Table, l2Tables, data uint64
}

// entryCopied says in an entry that nothing else refers to its cluster.
const entryCopied = 1 << 63

// before is how many clusters are before the data.
func (a *arranger) before() uint64 { return 1 + a.refTable + a.refBlocks + a.l1Table + a.l2Tables }

// find finds the data's clusters and gives each part its place. It is not ok if the tables are too large, or a
// cluster has too many references.
func (a *arranger) find() (ok bool, err error) {
	clusters := (uint64(a.fileSize)-1)>>a.clusterBits + 1
	if clusters > maxHead/2 || a.l1Needed() > maxHead/8 {
		return false, nil
	}
	a.counts, a.places = make([]uint16, clusters), make([]uint32, clusters)
	tooMany := false
	err = a.eachTable(func(index, offset uint64) error {
		a.l2Tables++
		return a.eachEntry(index, offset, func(e entry) error {
			for i := e.first; e.has && i <= e.last; i++ {
				tooMany = tooMany || a.counts[i] == math.MaxUint16
				a.counts[i]++
			}
			return nil
		})
	})
	if err != nil || tooMany {
		return false, err
	}
	for _, n := range a.counts {
		if n > 0 {
			a.data++
		}
	}
	a.l1Table = a.clustersOf(a.l1Needed() * 8)
	for { // counts count their own clusters, too
		blocks := a.clustersOf((a.before() + a.data) * 2)
		table := a.clustersOf(blocks * 8)
		if blocks == a.refBlocks && table == a.refTable {
			break
		}
		a.refBlocks, a.refTable = blocks, table
	}
	next := a.before()
	for i, n := range a.counts {
		if n > 0 {
			a.places[i] = uint32(next)
			next++
		}
	}
	return a.before()<<a.clusterBits <= maxHead, nil
}

// clustersOf returns how many clusters hold a number of bytes.
func (a *arranger) clustersOf(bytes uint64) uint64 { return (bytes + a.cluster() - 1) >> a.clusterBits }

// entry is an entry of an L2 table, which has the number index there.
type entry struct {
	index uint64
	bytes []byte
	// has says that the entry has data, in the clusters first to last. These are several if they are
	// compressed.
	has         bool
	compressed  bool
	first, last uint64
}

// eachEntry calls f for each entry of an L2 table.
func (a *arranger) eachEntry(table, offset uint64, f func(e entry) error) error {
	n := a.l2Entries()
	return a.each(a.l2[:], offset, n, a.cluster()/n, func(i uint64, b []byte) error {
		e := entry{index: i, bytes: b}
		value := binary.BigEndian.Uint64(b)
		switch at := value & offsetMask; {
		case (table*n+i)<<a.clusterBits >= a.size:
			clear(b)
		case value&entryCompressed != 0:
			e.has, e.compressed = true, true
			at, length := a.compressedData(value)
			e.first, e.last = at>>a.clusterBits, (at+length-1)>>a.clusterBits
		case at == 0, a.version >= 3 && !a.extended() && value&entryZero != 0,
			a.extended() && binary.BigEndian.Uint32(b[12:]) == 0:
		default:
			e.has, e.first, e.last = true, at>>a.clusterBits, at>>a.clusterBits
		}
		return f(e)
	})
}

// head returns all that is before the data.
func (a *arranger) head() ([]byte, error) {
	head := make([]byte, a.before()<<a.clusterBits)
	at := func(cluster uint64) []byte { return head[cluster<<a.clusterBits:] }
	put := binary.BigEndian.PutUint64
	if err := readFull(a.r, head[:min(a.cluster(), uint64(a.fileSize))], 0); err != nil {
		return nil, err
	}
	blocks := 1 + a.refTable
	l1 := blocks + a.refBlocks
	l2 := l1 + a.l1Table
	a.patch(head, l1<<a.clusterBits)
	for i := range a.refBlocks {
		put(at(1)[i*8:], (blocks+i)<<a.clusterBits)
	}
	for i := range a.before() {
		binary.BigEndian.PutUint16(at(blocks)[i*2:], 1)
	}
	for i, n := range a.counts {
		if n > 0 {
			binary.BigEndian.PutUint16(at(blocks)[a.places[i]*2:], n)
		}
	}
	err := a.eachTable(func(index, offset uint64) error {
		table := at(l2)
		put(at(l1)[index*8:], l2<<a.clusterBits|entryCopied)
		l2++
		return a.eachEntry(index, offset, func(e entry) error {
			to := table[e.index*uint64(len(e.bytes)):]
			copy(to, e.bytes)
			put(to, a.moved(e))
			return nil
		})
	})
	return head, err
}

// patch changes the fields of the header for the tables' places.
func (a *arranger) patch(header []byte, l1Offset uint64) {
	binary.BigEndian.PutUint32(header[36:], uint32(a.l1Needed()))
	binary.BigEndian.PutUint64(header[40:], l1Offset)
	binary.BigEndian.PutUint64(header[48:], a.cluster())
	binary.BigEndian.PutUint32(header[56:], uint32(a.refTable))
	if a.version < 3 {
		return
	}
	binary.BigEndian.PutUint64(header[72:], a.features&^featureDirty)
	binary.BigEndian.PutUint64(header[88:], 0) // autoclear: bitmaps are left out
	binary.BigEndian.PutUint32(header[96:], 4) // counts have 16 bits
}

// moved returns the first word of an entry for the new place of its data.
func (a *arranger) moved(e entry) uint64 {
	value := binary.BigEndian.Uint64(e.bytes)
	if !e.has {
		return value &^ (offsetMask | entryCopied)
	}
	to := uint64(a.places[e.first]) << a.clusterBits
	if e.compressed {
		at, _ := a.compressedData(value)
		return value - at + to + at&(a.cluster()-1)
	}
	value = value&^(offsetMask|entryCopied) | to
	if a.counts[e.first] == 1 {
		value |= entryCopied
	}
	return value
}

// runs returns the parts of the file with data.
func (a *arranger) runs() (all []run) {
	for i, n := range a.counts {
		if n == 0 {
			continue
		}
		offset := int64(i) << a.clusterBits
		length := min(int64(a.cluster()), a.fileSize-offset)
		if last := len(all) - 1; last >= 0 && all[last].offset+all[last].length == offset {
			all[last].length += length
		} else {
			all = append(all, run{offset, length})
		}
	}
	return all
}
