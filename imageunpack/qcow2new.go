package imageunpack

import (
	"encoding/binary"
	"io"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
)

// A new qcow2 file consists of four tables, each in its own clusters: the header, the reference table,
// one block of reference counts and the empty L1 table. It equals the output of qemu-img create with
// default options, without the table of feature names. A run of qemu-img takes longer than all other
// steps of making an overlay.
const (
	newCluster = qcow2.Cluster

	newRefTableOffset = 1 * newCluster
	newRefcountOffset = 2 * newCluster
	newL1Offset       = 3 * newCluster

	l2Covers = qcow2.L2Covers
)

// newQCOW2 is a qcow2 file without data.
type newQCOW2 struct {
	size          int64  // the virtual size in bytes; a multiple of sector
	backing       string // the backing file's name, at most 1023 bytes; empty if there is none
	backingFormat Format
}

// l1Clusters is how many clusters the L1 table takes. One block of reference counts suffices for a
// disk of 16 PiB.
func (n newQCOW2) l1Entries() int64  { return max(1, (n.size+l2Covers-1)/l2Covers) }
func (n newQCOW2) l1Clusters() int64 { return (n.l1Entries()*8 + newCluster - 1) / newCluster }

// length is the length of the file in bytes. Ranges that writeTo leaves out read as zeros.
func (n newQCOW2) length() int64 { return newL1Offset + n.l1Clusters()*newCluster }

// writeTo writes the parts that aren't zeros to an empty file of that length.
func (n newQCOW2) writeTo(w io.WriterAt) error {
	for _, part := range []struct {
		offset int64
		bytes  []byte
	}{
		{0, n.header()},
		{newRefTableOffset, binary.BigEndian.AppendUint64(nil, newRefcountOffset)},
		{newRefcountOffset, n.refcounts()},
	} {
		if _, err := w.WriteAt(part.bytes, part.offset); err != nil {
			return err
		}
	}
	return nil
}

// refcounts returns the reference counts: 1 for each cluster of the file.
func (n newQCOW2) refcounts() (b []byte) {
	for range n.length() / newCluster {
		b = binary.BigEndian.AppendUint16(b, 1)
	}
	return b
}

// header returns the header with its extensions, followed by the backing file's name.
func (n newQCOW2) header() []byte {
	return qcow2.Header{
		Size: n.size, L1Entries: n.l1Entries(), L1Offset: newL1Offset,
		RefTableOffset: newRefTableOffset, RefTableClusters: 1,
		Backing: n.backing, BackingFormat: string(n.backingFormat),
	}.Bytes()
}
