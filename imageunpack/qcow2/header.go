// Package qcow2 writes qcow2 files: the headers of new ones, and whole files that are a stream, out
// of raw disks.
//
// It reads no qcow2 file: package imageunpack checks those, and QEMU uses them. QEMU's
// docs/interop/qcow2.txt specifies the format.
package qcow2

import "encoding/binary"

// Sizes of new files. They are qemu-img's defaults.
const (
	ClusterBits = 16
	Cluster     = 1 << ClusterBits
	// L2Covers is how many bytes of the disk an entry of the L1 table covers: a table of Cluster/8
	// clusters.
	L2Covers = Cluster / 8 << ClusterBits
	// refcountOrder says that counts have 16 bits.
	refcountOrder = 4
	// headerLength includes the compression type.
	headerLength = 104 + 8
)

// Magic begins each file.
const Magic = "QFI\xfb"

// Types of header extensions.
const (
	ExtensionEnd           = 0x00000000
	ExtensionBackingFormat = 0xe2792aca
)

// Header describes a new file. Offsets are in bytes.
type Header struct {
	// Size is the disk's size in bytes, a multiple of 512.
	Size int64
	// L1Entries is the length of the L1 table.
	L1Entries, L1Offset int64
	// RefTableClusters is the length of the table of reference counts in clusters.
	RefTableOffset, RefTableClusters int64
	// Backing is the backing file's name, at most 1023 bytes; empty for none.
	Backing       string
	BackingFormat string
}

// Bytes returns the header with its extensions, followed by the backing file's name.
func (h Header) Bytes() []byte {
	var extensions []byte
	if h.Backing != "" {
		extensions = appendExtension(extensions, ExtensionBackingFormat, h.BackingFormat)
	}
	extensions = appendExtension(extensions, ExtensionEnd, "")
	backingOffset := uint64(headerLength + len(extensions))
	if h.Backing == "" {
		backingOffset = 0
	}
	b := append(make([]byte, 0, Cluster), Magic...)
	for _, field := range []any{
		uint32(3), // version
		backingOffset, uint32(len(h.Backing)),
		uint32(ClusterBits), uint64(h.Size),
		uint32(0), // encryption
		uint32(h.L1Entries), uint64(h.L1Offset),
		uint64(h.RefTableOffset), uint32(h.RefTableClusters),
		uint32(0), uint64(0), // snapshots
		uint64(0), uint64(0), uint64(0), // features: incompatible, compatible, autoclear
		uint32(refcountOrder), uint32(headerLength), uint64(0), // compression, padded
	} {
		switch v := field.(type) {
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	return append(append(b, extensions...), h.Backing...)
}

// appendExtension appends a header extension, padded to eight bytes.
func appendExtension(b []byte, kind uint32, data string) []byte {
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	return append(b, make([]byte, (8-len(data)%8)%8)...)
}
