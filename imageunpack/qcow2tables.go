package imageunpack

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// offsetMask is where L1 and standard L2 entries hold an offset in the file.
const offsetMask = 0x00ff_ffff_ffff_fe00

// Bits of an L2 entry.
const (
	entryZero       = 1 << 0 // reads as zeros, whatever the offset; version 3 without subclusters
	entryCompressed = 1 << 62
)

// subclusters is how many parts an extended L2 entry tells of.
const subclusters = 32

// chunk is how much of a table is in memory at a time, in bytes.
const chunk = 64 << 10

// tables walks the tables of a file whose header has been checked.
type tables struct {
	qcow2Header
	r        io.ReaderAt
	fileSize int64

	l2Tables uint64
	l1, l2   [chunk]byte // buffers
}

// checkRefcounts checks that the refcount blocks lie within the file.
func (t *tables) checkRefcounts() error {
	entries := t.cluster() * uint64(t.refTableClusters) / 8
	return t.each(t.l1[:], t.refTableOffset, entries, 8, func(_ uint64, b []byte) error {
		offset := binary.BigEndian.Uint64(b) &^ 0x1ff
		if offset == 0 {
			return nil
		}
		return t.checkPlace("refcount block", offset, t.cluster(), t.fileSize)
	})
}

// checkMapping checks that the L2 tables, and all data that the guest can read, lie within the
// file.
func (t *tables) checkMapping() error {
	return t.each(t.l1[:], t.l1Offset, uint64(t.l1Entries), 8, func(i uint64, b []byte) error {
		offset := binary.BigEndian.Uint64(b) & offsetMask
		if offset == 0 {
			return nil
		}
		if err := t.checkPlace("L2 table", offset, t.cluster(), t.fileSize); err != nil {
			return err
		}
		// Each table has a cluster of its own, unless somebody wants us to read for ever.
		if t.l2Tables++; t.l2Tables > uint64(t.fileSize)/t.cluster() {
			return fmt.Errorf("%w: more L2 tables than the file has room for: %s", ErrCorrupt, repair)
		}
		if i >= t.l1Needed() {
			return nil
		}
		return t.checkL2(i, offset)
	})
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

// checkCluster checks an L2 entry, of whose cluster the guest can read the first length bytes.
func (t *tables) checkCluster(b []byte, length uint64) error {
	entry := binary.BigEndian.Uint64(b)
	if entry&entryCompressed != 0 {
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
	return t.checkPlace("data cluster", offset, length, t.fileSize)
}

// checkCompressed checks the entry of a compressed cluster, whose length is known in sectors.
func (t *tables) checkCompressed(entry uint64) error {
	offsetBits := 62 - (t.clusterBits - 8)
	entry &= entryCompressed - 1
	offset := entry & (1<<offsetBits - 1)
	length := (entry>>offsetBits+1)*sector - offset%sector
	// The end of the last sector isn't data, and need not be there.
	size := (uint64(t.fileSize) + sector - 1) &^ (sector - 1)
	return checkWithin("compressed cluster", offset, length, size)
}

// each calls f for each entry of the table at offset, which lies within the file.
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
