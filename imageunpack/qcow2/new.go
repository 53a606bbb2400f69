package qcow2

import (
	"encoding/binary"
	"io"
)

// A new qcow2 file consists of four tables, each in its own clusters: the header, the reference table,
// one block of reference counts and the empty L1 table. It equals the output of qemu-img create with
// default options, without the table of feature names. A run of qemu-img takes longer than all other
// steps of making an overlay.
const (
	newRefTableOffset = 1 * Cluster
	newRefcountOffset = 2 * Cluster
	newL1Offset       = 3 * Cluster
)

// New is a qcow2 file without data.
type New struct {
	// Size is the virtual size in bytes, a multiple of 512.
	Size int64
	// Backing is the backing file's name, at most 1023 bytes; empty if there is none.
	Backing       string
	BackingFormat string
}

// l1Clusters is how many clusters the L1 table takes. One block of reference counts suffices for a
// disk of 16 PiB.
func (n New) l1Entries() int64  { return max(1, (n.Size+L2Covers-1)/L2Covers) }
func (n New) l1Clusters() int64 { return (n.l1Entries()*8 + Cluster - 1) / Cluster }

// Length is the length of the file in bytes. Ranges that Fill leaves out read as zeros.
func (n New) Length() int64 { return newL1Offset + n.l1Clusters()*Cluster }

// Fill writes the parts that aren't zeros to an empty file of that length.
func (n New) Fill(w io.WriterAt) error {
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
func (n New) refcounts() (b []byte) {
	for range n.Length() / Cluster {
		b = binary.BigEndian.AppendUint16(b, 1)
	}
	return b
}

// header returns the header with its extensions, followed by the backing file's name.
func (n New) header() []byte {
	return Header{
		Size: n.Size, L1Entries: n.l1Entries(), L1Offset: newL1Offset,
		RefTableOffset: newRefTableOffset, RefTableClusters: 1,
		Backing: n.Backing, BackingFormat: n.BackingFormat,
	}.Bytes()
}
