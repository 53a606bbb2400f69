package imageunpack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
)

// QEMU's docs/interop/qcow2.txt specifies the format; the limits are QEMU's own, in block/qcow2.h. QEMU
// would refuse such a file too, but only after the VM's network and devices exist; or worse, the guest
// would run until it accessed a missing part.
const (
	qcow2Magic = qcow2.Magic

	headerV2 = 72  // bytes of a version 2 header
	headerV3 = 104 // bytes of the shortest version 3 header

	minClusterBits, maxClusterBits = 9, 21

	maxL1Bytes       = 32 << 20
	maxL2Bytes       = 2 << 30 // our limit for all L2 tables together: 16 TiB in clusters of 64 KiB
	maxRefTableBytes = 8 << 20
	maxSnapshots     = 1 << 16
	minSnapshotBytes = 40
	maxExtensions    = 64
	maxRefcountOrder = 6

	// minExtendedBits is the smallest cluster that can be split into 32 subclusters.
	minExtendedBits = 14
)

// Bits of the header's incompatible features.
const (
	featureDirty = 1 << iota
	featureCorrupt
	featureDataFile
	featureCompression
	featureExtendedL2
	featuresEnd

	featuresKnown = featuresEnd - 1
)

const (
	extensionEnd           = qcow2.ExtensionEnd
	extensionBackingFormat = qcow2.ExtensionBackingFormat
	extensionDataFile      = 0x44415441
	extensionLUKS          = 0x0537be77
)

const (
	copyAgain      = "copy it again, and build the image from a complete file"
	repair         = "look at it with qemu-img check, and build the image from a sound file"
	flatten        = "make it one file with qemu-img convert -O qcow2, and build the image from that"
	largerClusters = "give it larger clusters with qemu-img convert -O qcow2 -o cluster_size=2M, and build the image from that"
	rewrite        = "write it again, without compression or with larger clusters, with qemu-img convert -O qcow2, and build the image from that"
	decrypt        = "decrypt it with qemu-img convert --object secret,id=key,file=KEYFILE --image-opts " +
		"driver=qcow2,encrypt.key-secret=key,file.filename=FILE -O qcow2 disk.qcow2, and build the image from that"
)

// qcow2Header holds the fields that matter to a reader. Offsets and sizes are in bytes.
type qcow2Header struct {
	version, clusterBits, crypt uint32
	backingOffset               uint64
	backingSize                 uint32
	size                        uint64 // the virtual size
	l1Entries                   uint32
	l1Offset                    uint64
	refTableOffset              uint64
	refTableClusters            uint32
	snapshots                   uint32
	snapshotsOffset             uint64
	features                    uint64
	refcountOrder, length       uint32
	compression                 uint8
	// overlay is set for an overlay of ours, of which the fields about the backing file are not set.
	overlay bool
}

// isQCOW2 reports whether a file begins as a qcow2 file does.
func isQCOW2(r io.ReaderAt, size int64) (bool, error) {
	head := make([]byte, min(size, 8))
	if err := readFull(r, head, 0); err != nil {
		return false, err
	}
	// Version 1 is the older format qcow, which shares little more than the magic with qcow2.
	return bytes.HasPrefix(head, []byte(qcow2Magic)) &&
		!bytes.HasSuffix(head, []byte("\x00\x00\x00\x01")), nil
}

// checkQCOW2 checks a qcow2 file and returns its layout. The numbers in the file are untrusted. The
// cost of the check has limits: maxClusters for memory, maxL1Bytes and maxL2Bytes for time, since
// tables share no cluster and each is read at most twice.
//
// The dirty bit is accepted: it means that reference counts are out of date, which only writers use.
// Internal snapshots are accepted and ignored: the guest sees the active state.
func checkQCOW2(r io.ReaderAt, size, maxSize int64) (layout, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return layout{}, err
	}
	return h.check(r, size, maxSize)
}

// check checks the file that h is the header of.
func (h qcow2Header) check(r io.ReaderAt, size, maxSize int64) (layout, error) {
	if err := h.checkSupported(); err != nil {
		return layout{}, err
	}
	if err := errors.Join(CheckSize("virtual disk", int64(h.size), maxSize), CheckSize("qcow2 file", size, maxSize)); err != nil {
		return layout{}, err
	}
	if err := h.checkExtensions(r, size); err != nil {
		return layout{}, err
	}
	if err := h.checkPlaces(size); err != nil {
		return layout{}, err
	}
	t := tables{qcow2Header: h, r: r, fileSize: size}
	err := t.check()
	return layout{QCOW2, int64(h.size), int64(t.content)}, err
}

// readHeader decodes the header. It checks only what the decoding depends on.
func readHeader(r io.ReaderAt, size int64) (qcow2Header, error) {
	var b [headerV3 + 8]byte
	if size < headerV2 {
		return qcow2Header{}, fmt.Errorf("%w: %d bytes are not a qcow2 header: %s", ErrTruncated, size, copyAgain)
	}
	if err := readFull(r, b[:min(size, int64(len(b)))], 0); err != nil {
		return qcow2Header{}, err
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	h := qcow2Header{
		version:          u32(4),
		backingOffset:    u64(8),
		backingSize:      u32(16),
		clusterBits:      u32(20),
		size:             u64(24),
		crypt:            u32(32),
		l1Entries:        u32(36),
		l1Offset:         u64(40),
		refTableOffset:   u64(48),
		refTableClusters: u32(56),
		snapshots:        u32(60),
		snapshotsOffset:  u64(64),
		length:           headerV2,
		refcountOrder:    4,
	}
	switch {
	case h.version == 2:
		return h, nil
	case h.version != 3:
		return h, fmt.Errorf("%w: qcow2 version %d, known are 2 and 3: %s", ErrUnsupported, h.version, flatten)
	case size < headerV3:
		return h, fmt.Errorf("%w: %d bytes are not a qcow2 header: %s", ErrTruncated, size, copyAgain)
	}
	h.features, h.refcountOrder, h.length = u64(72), u32(96), u32(100)
	if h.length > headerV3 {
		h.compression = b[headerV3]
	}
	return h, nil
}

// checkSupported checks the fields of the header that don't refer to other parts of the file.
func (h *qcow2Header) checkSupported() error {
	switch {
	case h.clusterBits < minClusterBits || h.clusterBits > maxClusterBits:
		return fmt.Errorf("%w: cluster_bits is %d, not %d to %d: %s",
			ErrCorrupt, h.clusterBits, minClusterBits, maxClusterBits, repair)
	case h.version == 3 && (h.length < headerV3 || h.length%8 != 0 || uint64(h.length) > h.cluster()):
		return fmt.Errorf("%w: the header's length is %d: %s", ErrCorrupt, h.length, repair)
	case h.backingOffset != 0 || h.backingSize != 0:
		return fmt.Errorf("%w, which is not in the image: %s", ErrBackingFile, flatten)
	case h.crypt != 0:
		return fmt.Errorf("%w (method %d): %s", ErrEncrypted, h.crypt, decrypt)
	case h.features&featureDataFile != 0:
		return fmt.Errorf("%w, which is not in the image: %s", ErrExternalData, flatten)
	case h.features&featureCorrupt != 0:
		return fmt.Errorf("%w: it is marked as corrupt: repair it with qemu-img check -r all, "+
			"and build the image from the result", ErrCorrupt)
	case h.features&^featuresKnown != 0:
		return fmt.Errorf("%w: incompatible feature bits %#x: %s",
			ErrUnsupported, h.features&^featuresKnown, flatten)
	case h.extended() && h.clusterBits < minExtendedBits:
		return fmt.Errorf("%w: subclusters in clusters of %d bytes: %s", ErrCorrupt, h.cluster(), repair)
	case h.compression > 1:
		return fmt.Errorf("%w: compression type %d: %s", ErrUnsupported, h.compression, flatten)
	case (h.features&featureCompression != 0) != (h.compression != 0):
		return fmt.Errorf("%w: the compression type and its feature bit disagree: %s", ErrCorrupt, repair)
	case h.refcountOrder > maxRefcountOrder:
		return fmt.Errorf("%w: refcount_order is %d: %s", ErrCorrupt, h.refcountOrder, repair)
	case h.size == 0:
		return fmt.Errorf("%w: the virtual size is 0: build the image from a disk with content", ErrSize)
	case h.size > 1<<63-1 || h.size%sector != 0:
		return fmt.Errorf("%w: the virtual size is %d bytes, which is not a multiple of %d: "+
			"qemu-img resize it", ErrSize, h.size, sector)
	}
	return nil
}

// checkPlaces returns an error for tables that are too long or not completely in the file.
func (h *qcow2Header) checkPlaces(size int64) error {
	l1, ref := 8*uint64(h.l1Entries), h.cluster()*uint64(h.refTableClusters)
	switch {
	case l1 > maxL1Bytes || ref > maxRefTableBytes || h.snapshots > maxSnapshots:
		return fmt.Errorf("%w: an L1 table of %d bytes, a refcount table of %d, %d snapshots: %s",
			ErrCorrupt, l1, ref, h.snapshots, repair)
	case uint64(h.l1Entries) < h.l1Needed():
		return fmt.Errorf("%w: an L1 table of %d entries, not %d: %s",
			ErrCorrupt, h.l1Entries, h.l1Needed(), repair)
	case ref == 0:
		return fmt.Errorf("%w: no refcount table: %s", ErrCorrupt, repair)
	}
	for _, t := range h.places() {
		if err := h.checkPlace(t.name, t.offset, t.length, size); err != nil {
			return err
		}
	}
	return nil
}

// place is the position of a table, in bytes.
type place struct {
	name           string
	offset, length uint64
}

// places returns the tables in the header that have entries.
func (h *qcow2Header) places() []place {
	all := []place{
		{"L1 table", h.l1Offset, 8 * uint64(h.l1Entries)},
		{"refcount table", h.refTableOffset, h.cluster() * uint64(h.refTableClusters)},
		{"snapshot table", h.snapshotsOffset, minSnapshotBytes * uint64(h.snapshots)},
	}
	return slices.DeleteFunc(all, func(p place) bool { return p.length == 0 })
}

// checkPlace checks that a table or cluster at offset begins a cluster and is within the file.
func (h *qcow2Header) checkPlace(name string, offset, length uint64, size int64) error {
	if offset&(h.cluster()-1) != 0 || offset == 0 {
		return fmt.Errorf("%w: %s at %#x, where no cluster begins: %s", ErrCorrupt, name, offset, repair)
	}
	return checkWithin(name, offset, length, uint64(size))
}

func checkWithin(name string, offset, length, size uint64) error {
	if offset > size || length > size-offset {
		return fmt.Errorf("%w: the file has %d bytes, but a %s of %d at %#x: %s",
			ErrTruncated, size, name, length, offset, copyAgain)
	}
	return nil
}

// checkExtensions checks the header's extensions, which are in the first cluster.
func (h *qcow2Header) checkExtensions(r io.ReaderAt, size int64) error {
	at, end := uint64(h.length), h.cluster()
	for range maxExtensions {
		if at+8 > end {
			return nil
		}
		if err := checkWithin("header extension", at, 8, uint64(size)); err != nil {
			return err
		}
		var b [8]byte
		if err := readFull(r, b[:], int64(at)); err != nil {
			return err
		}
		kind, length := binary.BigEndian.Uint32(b[:4]), uint64(binary.BigEndian.Uint32(b[4:]))
		switch kind {
		case extensionEnd:
			return nil
		case extensionBackingFormat:
			if h.overlay {
				break
			}
			return fmt.Errorf("%w, or had one: %s", ErrBackingFile, flatten)
		case extensionDataFile:
			return fmt.Errorf("%w, which is not in the image: %s", ErrExternalData, flatten)
		case extensionLUKS:
			return fmt.Errorf("%w (LUKS): %s", ErrEncrypted, decrypt)
		}
		at += 8
		if length > end-at {
			return fmt.Errorf("%w: header extension %#x of %d bytes: %s", ErrCorrupt, kind, length, repair)
		}
		at += (length + 7) &^ 7
	}
	return fmt.Errorf("%w: more than %d header extensions: %s", ErrCorrupt, maxExtensions, repair)
}

// cluster is the size of a cluster in bytes.
func (h *qcow2Header) cluster() uint64 { return 1 << h.clusterBits }

// extended reports whether L2 entries have 16 bytes, with a bitmap of subclusters, instead of 8.
func (h *qcow2Header) extended() bool { return h.features&featureExtendedL2 != 0 }

// l2Entries is the number of entries in an L2 table, which fills a cluster.
func (h *qcow2Header) l2Entries() uint64 {
	if h.extended() {
		return h.cluster() / 16
	}
	return h.cluster() / 8
}

// l1Needed is how many L1 entries the virtual size takes. Further entries hold the state of snapshots.
func (h *qcow2Header) l1Needed() uint64 {
	covered := h.l2Entries() << h.clusterBits
	return (h.size-1)/covered + 1
}

// readFull fills b from offset. The range must be within the file.
func readFull(r io.ReaderAt, b []byte, offset int64) error {
	n, err := r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	return fmt.Errorf("read %d bytes at %#x: %w", len(b), offset, err)
}
