package imageunpack_test

import (
	"encoding/binary"
	"fmt"
)

// qcow2Judge looks at a small qcow2 file in the plainest way, to hold the check against: with a map
// of what each cluster holds.
type qcow2Judge struct {
	b                      []byte
	version                uint32
	bits                   uint32
	cluster, width, guests uint64 // of clusters, L2 entries and the guest's disk, in bytes
	holds                  map[uint64]string
	faults                 []string
}

func newQCOW2Judge(b []byte) *qcow2Judge {
	be := binary.BigEndian
	q := &qcow2Judge{b: b, version: be.Uint32(b[4:]), bits: be.Uint32(b[20:]), width: 8, guests: be.Uint64(b[24:])}
	if q.version == 3 && be.Uint64(b[72:])&16 != 0 {
		q.width = 16
	}
	q.cluster = 1 << q.bits
	q.holds = map[uint64]string{0: "header"}
	return q
}

// judge fills in faults. The file has been accepted: no offset of a table is beyond its end, or the
// judge panics.
func (q *qcow2Judge) judge() {
	be := binary.BigEndian
	l1, l1Entries := be.Uint64(q.b[40:]), uint64(be.Uint32(q.b[36:]))
	counts, countsLength := be.Uint64(q.b[48:]), uint64(be.Uint32(q.b[56:]))*q.cluster
	q.table("L1 table", l1, 8*l1Entries)
	q.table("refcount table", counts, countsLength)
	if n := uint64(be.Uint32(q.b[60:])); n > 0 {
		q.table("snapshots", be.Uint64(q.b[64:]), 40*n)
	}
	for i := uint64(0); i < countsLength; i += 8 {
		if block := be.Uint64(q.b[counts+i:]) &^ 511; block != 0 {
			q.table("refcount block", block, q.cluster)
		}
	}
	l2 := map[uint64]uint64{}
	for i := range l1Entries {
		if at := be.Uint64(q.b[l1+8*i:]) & 0x00ff_ffff_ffff_fe00; at != 0 {
			q.table("L2 table", at, q.cluster)
			l2[i] = at
		}
	}
	entries := q.cluster / q.width
	for i, at := range l2 {
		for j := range entries {
			if guest := (i*entries + j) << q.bits; guest < q.guests {
				q.entry(q.b[at+j*q.width:], q.guests-guest)
			}
		}
	}
}

// table notes what clusters hold.
func (q *qcow2Judge) table(name string, at, length uint64) {
	for i := at / q.cluster; i*q.cluster < at+length; i++ {
		if was := q.holds[i]; was != "" {
			q.faults = append(q.faults, fmt.Sprintf("%s at %#x, where a %s is", name, at, was))
		}
		q.holds[i] = name
	}
}

// entry looks at where an L2 entry leads a guest that reads the cluster, of which it has most bytes.
func (q *qcow2Judge) entry(b []byte, most uint64) {
	entry := binary.BigEndian.Uint64(b)
	at, length := entry&0x00ff_ffff_ffff_fe00, min(most, q.cluster)
	switch {
	case entry>>62&1 == 1:
		low := 62 - (q.bits - 8)
		at = entry & (1<<low - 1)
		length = (entry&(1<<62-1)>>low+1)*512 - at%512
		if end := at + length; end > uint64(len(q.b)) && end-uint64(len(q.b)) < 512 {
			length = uint64(len(q.b)) - at // the last sector's end need not be there
		}
	case at == 0, q.width == 8 && q.version == 3 && entry&1 == 1:
		return
	case q.width == 16:
		read := uint64(0)
		for i := range uint64(32) {
			if binary.BigEndian.Uint32(b[12:])>>i&1 == 1 {
				read = (i + 1) * q.cluster / 32
			}
		}
		if length = min(length, read); length == 0 {
			return
		}
	}
	if at+length > uint64(len(q.b)) {
		q.faults = append(q.faults, fmt.Sprintf("data at %#x+%#x, beyond the end", at, length))
		return
	}
	for i := at / q.cluster; i*q.cluster < at+length; i++ {
		if is := q.holds[i]; is != "" {
			q.faults = append(q.faults, fmt.Sprintf("data at %#x, where a %s is", at, is))
		}
	}
}
