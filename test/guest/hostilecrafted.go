package guest

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"math"
)

// craftedDisk is a disk that no tool makes.
type craftedDisk struct {
	name    string
	content []byte
}

func craftedDisks() []craftedDisk {
	return []craftedDisk{
		{"empty", nil},
		{"one-byte", []byte{0}},
		{"odd-size", make([]byte, 1<<20+1)},
		{"luks", append([]byte("LUKS\xba\xbe\x00\x01"), make([]byte, 1<<20-8)...)},
		{"truncated", qcow2Header(nil)[:40]},
		{"header-only", qcow2Header(nil)},
		{"unknown-version", qcow2Header(func(h []byte) { h[7] = 9 })},
		{"unknown-feature", qcow2Header(func(h []byte) { h[72] = 0x80 })},
		{"large-cluster", qcow2Header(func(h []byte) { h[23] = 63 })},
		{"large-table", qcow2Header(func(h []byte) { binary.BigEndian.PutUint32(h[36:], 1<<31) })},
		{"table-outside", qcow2Header(func(h []byte) { binary.BigEndian.PutUint64(h[40:], 1<<60) })},
		{"l1-names-itself", smallQCOW2(func(q qcow2Parts) { putTable(q.l1, 1) })},
		{"l2-names-itself", smallQCOW2(func(q qcow2Parts) { putTable(q.l2, 4) })},
		{"l2-names-l1", smallQCOW2(func(q qcow2Parts) { putTable(q.l2, 1) })},
		{"l2-ring", smallQCOW2(func(q qcow2Parts) { // data that is a table, whose data is the first one
			putTable(q.l2, 5)
			binary.BigEndian.PutUint32(q.header[36:], 2)
			binary.BigEndian.PutUint64(q.header[24:], smallCluster/8*smallCluster+smallCluster)
			putTable(q.l1[8:], 5)
			putTable(q.data, 4)
		})},
		{"l2-named-twice", smallQCOW2(func(q qcow2Parts) {
			binary.BigEndian.PutUint32(q.header[36:], 2)
			putTable(q.l1[8:], 4)
		})},
		{"refcounts-overlap", smallQCOW2(func(q qcow2Parts) { binary.BigEndian.PutUint64(q.header[48:], smallCluster) })},
		{"refcount-block-loop", smallQCOW2(func(q qcow2Parts) { binary.BigEndian.PutUint64(q.refcounts, 2*smallCluster) })},
		{"data-in-header", smallQCOW2(func(q qcow2Parts) { binary.BigEndian.PutUint64(q.l2, 1<<62) })},
		{"many-small-clusters", smallQCOW2(func(q qcow2Parts) {
			binary.BigEndian.PutUint64(q.header[24:], 1<<40)
			binary.BigEndian.PutUint32(q.header[36:], 1<<25) // 256 MiB of L1 table
		})},
	}
}

const smallCluster = 512

// qcow2Parts are the parts of a small qcow2 file, each a cluster.
type qcow2Parts struct{ header, l1, refcounts, block, l2, data []byte }

// smallQCOW2 is a sound file of one data cluster, changed by a function.
func smallQCOW2(change func(qcow2Parts)) []byte {
	b := make([]byte, 6*smallCluster)
	at := func(i int) []byte { return b[i*smallCluster : (i+1)*smallCluster] }
	q := qcow2Parts{at(0), at(1), at(2), at(3), at(4), at(5)}
	copy(q.header, qcow2Header(func(h []byte) {
		binary.BigEndian.PutUint32(h[20:], 9) // bits of a cluster
		binary.BigEndian.PutUint64(h[24:], smallCluster)
		binary.BigEndian.PutUint64(h[40:], 1*smallCluster)
		binary.BigEndian.PutUint64(h[48:], 2*smallCluster)
	}))
	putTable(q.l1, 4)
	binary.BigEndian.PutUint64(q.refcounts, 3*smallCluster)
	for i := range 6 {
		binary.BigEndian.PutUint16(q.block[2*i:], 1)
	}
	putTable(q.l2, 5)
	change(q)
	return b
}

// putTable writes an L1 or L2 entry that names a cluster.
func putTable(entry []byte, cluster uint64) {
	binary.BigEndian.PutUint64(entry, 1<<63|cluster*smallCluster)
}

// CompressedBomb is a sound qcow2 file of some MiB whose guest sees hundreds of GiB: each entry
// of its L2 table names the same compressed cluster, which inflates a thousandfold.
func CompressedBomb() ([]byte, error) {
	const bits, cluster = 21, 1 << 21
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(make([]byte, cluster)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	b := make([]byte, 6*cluster)
	copy(b, qcow2Header(func(h []byte) {
		binary.BigEndian.PutUint32(h[20:], bits)
		binary.BigEndian.PutUint64(h[24:], cluster/8*cluster)
		binary.BigEndian.PutUint64(h[40:], 1*cluster)
		binary.BigEndian.PutUint64(h[48:], 2*cluster)
	}))
	binary.BigEndian.PutUint64(b[1*cluster:], 1<<63|4*cluster)
	binary.BigEndian.PutUint64(b[2*cluster:], 3*cluster)
	for i := range 5 {
		binary.BigEndian.PutUint16(b[3*cluster+2*i:], 1)
	}
	binary.BigEndian.PutUint16(b[3*cluster+2*5:], math.MaxUint16) // as many as there is room for
	sectors := uint64(packed.Len()+511)/512 - 1
	for i := range cluster / 8 {
		binary.BigEndian.PutUint64(b[4*cluster+8*i:], 1<<62|sectors<<(62-(bits-8))|5*cluster)
	}
	copy(b[5*cluster:], packed.Bytes())
	return b, nil
}

// qcow2Header is the header of a version 3 image of 1 MiB, changed by a function, and none of the
// tables that it names. See qemu's docs/interop/qcow2.txt.
func qcow2Header(change func(header []byte)) []byte {
	h := make([]byte, 104)
	copy(h, "QFI\xfb")
	binary.BigEndian.PutUint32(h[4:], 3)         // version
	binary.BigEndian.PutUint32(h[20:], 16)       // bits of a cluster
	binary.BigEndian.PutUint64(h[24:], 1<<20)    // virtual size
	binary.BigEndian.PutUint32(h[36:], 1)        // entries of the L1 table
	binary.BigEndian.PutUint64(h[40:], 0x30_000) // where it is
	binary.BigEndian.PutUint64(h[48:], 0x10_000) // where the refcount table is
	binary.BigEndian.PutUint32(h[56:], 1)        // its clusters
	binary.BigEndian.PutUint32(h[96:], 4)        // refcount order
	binary.BigEndian.PutUint32(h[100:], 104)     // header length
	if change != nil {
		change(h)
	}
	return h
}
