package imageunpack

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"sync"
)

// offsetMask selects the offset in the file in L1 and standard L2 entries.
const offsetMask = 0x00ff_ffff_ffff_fe00

// Bits of an L2 entry.
const (
	entryZero       = 1 << 0 // reads as zeros, whatever the offset; version 3 without subclusters
	entryCompressed = 1 << 62
)

// subclusters is the number of subclusters in an extended L2 entry.
const subclusters = 32

// chunk is how many bytes of a table are in memory at a time.
const chunk = 64 << 10

// tables walks the tables of a file whose header has been checked.
type tables struct {
	qcow2Header
	r        io.ReaderAt
	fileSize int64

	content  uint64 // bytes that the guest sees in clusters which don't read as zeros
	work     uint64 // the cost of reading the whole disk, see checkWork
	reserved reservations
	l1, l2   [chunk]byte // buffers
}

// check checks that all tables, and all data that the guest can read, are within the file, and that no
// table shares a cluster with another table or with data.
func (t *tables) check() (err error) {
	if t.reserved, err = newReservations(uint64(t.fileSize), t.clusterBits); err != nil {
		return err
	}
	for _, p := range append([]place{{"header", 0, uint64(t.length)}}, t.places()...) {
		if err := t.reserved.reserve(p.name, p.offset, p.length); err != nil {
			return err
		}
	}
	if err := t.checkRefcounts(); err != nil {
		return err
	}
	if err := t.checkL2Places(); err != nil {
		return err
	}
	if err := t.checkMapping(); err != nil {
		return err
	}
	return t.checkWork()
}

// The limit of the work that reading a whole disk takes, in bytes of uncompressed data that take
// as long: baseWork for any file, and workRatio for each byte of the file. Each cluster is a
// request, so that small ones take as long as minWork bytes, or minInflate if they are compressed.
const (
	baseWork   = 16 << 30
	workRatio  = 100
	minWork    = 4 << 10
	minInflate = 64 << 10
)

// checkWork refuses a file that names the same data again and again. In a sound file each cluster
// of the guest has its own data, so that the file's size limits the work, unless the data are
// compressed beyond all measure. A conversion of such a file would keep the node busy for hours.
func (t *tables) checkWork() error {
	if most := baseWork + workRatio*uint64(t.fileSize); t.work > most {
		return fmt.Errorf("%w: %d bytes hold a disk that takes as long to read as %s, and at most %s are supported: %s",
			ErrUnsupported, t.fileSize, quantity(int64(t.work)), quantity(int64(most)), rewrite)
	}
	return nil
}

// checkRefcounts checks the positions of the refcount blocks.
func (t *tables) checkRefcounts() error {
	entries := t.cluster() * uint64(t.refTableClusters) / 8
	return t.each(t.l1[:], t.refTableOffset, entries, 8, func(_ uint64, b []byte) error {
		offset := binary.BigEndian.Uint64(b) &^ 0x1ff
		if offset == 0 {
			return nil
		}
		return t.takeCluster("refcount block", offset)
	})
}

// checkL2Places checks the positions of the L2 tables, including those for the state of snapshots. No
// table may be named twice: a small file would take as long to read as a large one.
func (t *tables) checkL2Places() error {
	if t.l1Needed() > maxL2Bytes/t.cluster() {
		return fmt.Errorf("%w: L2 tables of more than %d bytes: %s", ErrUnsupported, maxL2Bytes, largerClusters)
	}
	return t.eachL2(func(_, offset uint64) error { return t.takeCluster("L2 table", offset) })
}

// l2Table is the L2 table of the L1 entry index.
type l2Table struct{ index, offset uint64 }

// checkMapping checks the entries of the L2 tables.
func (t *tables) checkMapping() error {
	var next []l2Table
	check := func() error {
		t.fetch(next)
		for _, l2 := range next {
			if err := t.checkL2(l2.index, l2.offset); err != nil {
				return err
			}
		}
		next = next[:0]
		return nil
	}
	err := t.eachTable(func(i, offset uint64) error {
		if next = append(next, l2Table{i, offset}); len(next) < fetches {
			return nil
		}
		return check()
	})
	if err != nil {
		return err
	}
	return check()
}

const (
	// fetches is how many tables are fetched at once.
	fetches = 16
	// fetchPiece is the least that a node fetches of a file, in bytes.
	fetchPiece = 1 << 20
)

// fetch has a node that fetches a file as it is read do so for tables that are apart from each other, at once
// instead of one after the other. It does not report errors, since the tables are read again.
func (t *tables) fetch(all []l2Table) {
	if covered := t.l2Entries() << t.clusterBits; covered < fetchPiece || len(all) < 2 {
		return
	}
	var done sync.WaitGroup
	for _, l2 := range all {
		done.Go(func() { _, _ = t.r.ReadAt(make([]byte, 1), int64(l2.offset)) })
	}
	done.Wait()
}

// eachTable calls f for each L2 table that the guest can reach.
func (t *tables) eachTable(f func(index, offset uint64) error) error {
	return t.eachL2(func(i, offset uint64) error {
		if i >= t.l1Needed() {
			return nil
		}
		return f(i, offset)
	})
}

// eachL2 calls f for each L1 entry that names a table.
func (t *tables) eachL2(f func(i, offset uint64) error) error {
	return t.each(t.l1[:], t.l1Offset, uint64(t.l1Entries), 8, func(i uint64, b []byte) error {
		offset := binary.BigEndian.Uint64(b) & offsetMask
		if offset == 0 {
			return nil
		}
		return f(i, offset)
	})
}

// takeCluster checks a table of one cluster.
func (t *tables) takeCluster(table string, offset uint64) error {
	if err := t.checkPlace(table, offset, t.cluster(), t.fileSize); err != nil {
		return err
	}
	return t.reserved.reserve(table, offset, t.cluster())
}

// checkL2 checks the table of the L1 entry with the given index.
func (t *tables) checkL2(index, offset uint64) error {
	entries := t.l2Entries()
	return t.each(t.l2[:], offset, entries, t.cluster()/entries, func(i uint64, b []byte) error {
		guest := (index*entries + i) << t.clusterBits
		if guest >= t.size {
			return nil
		}
		return t.checkCluster(b, min(t.cluster(), t.size-guest))
	})
}

// checkCluster checks an L2 entry. The guest can read the first length bytes of its cluster.
func (t *tables) checkCluster(b []byte, length uint64) error {
	entry := binary.BigEndian.Uint64(b)
	if entry&entryCompressed != 0 {
		t.content += length
		t.work += max(length, minInflate)
		return t.checkCompressed(entry)
	}
	offset := entry & offsetMask
	switch {
	case offset == 0:
		return nil
	case t.extended():
		// Only allocated subclusters need to have been written.
		allocated := uint64(bits.Len32(binary.BigEndian.Uint32(b[12:])))
		length = min(length, allocated*(t.cluster()/subclusters))
	case t.version >= 3 && entry&entryZero != 0:
		length = 0
	}
	if length == 0 {
		return nil
	}
	t.content += length
	t.work += max(length, minWork)
	if err := t.checkPlace("data cluster", offset, length, t.fileSize); err != nil {
		return err
	}
	return t.reserved.refuse("data cluster", offset, length)
}

// checkCompressed checks the entry of a compressed cluster.
func (t *tables) checkCompressed(entry uint64) error {
	offset, length := t.compressedData(entry)
	// The end of the last sector isn't data, and the file may end before it.
	size := (uint64(t.fileSize) + sector - 1) &^ (sector - 1)
	if err := checkWithin("compressed cluster", offset, length, size); err != nil {
		return err
	}
	return t.reserved.refuse("compressed cluster", offset, length)
}

// compressedData returns where the data of a compressed cluster are, in bytes; their length is known in
// sectors.
func (h *qcow2Header) compressedData(entry uint64) (offset, length uint64) {
	offsetBits := 62 - (h.clusterBits - 8)
	entry &= entryCompressed - 1
	offset = entry & (1<<offsetBits - 1)
	return offset, (entry>>offsetBits+1)*sector - offset%sector
}

// each calls f for each entry of the table at offset, which is within the file.
func (t *tables) each(buf []byte, offset, entries, width uint64, f func(i uint64, b []byte) error) error {
	perChunk := uint64(len(buf)) / width
	for first := uint64(0); first < entries; first += perChunk {
		n := min(perChunk, entries-first)
		part := buf[:n*width]
		if err := readFull(t.r, part, int64(offset+first*width)); err != nil {
			return err
		}
		for i := range n {
			if err := f(first+i, part[i*width:(i+1)*width]); err != nil {
				return err
			}
		}
	}
	return nil
}
