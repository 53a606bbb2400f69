package outage

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Operation codes of iSCSI (RFC 7143, 11.2.1.2): of an initiator, and of a target's answers.
const (
	opNopOut  = 0x00
	opCommand = 0x01
	opTask    = 0x02
	opLogin   = 0x03
	opDataOut = 0x05
	opLogout  = 0x06

	opNopIn          = 0x20
	opCommandAnswer  = 0x21
	opTaskAnswer     = 0x22
	opLoginAnswer    = 0x23
	opLogoutAnswer   = 0x26
	immediate        = 0x40 // added to a request's code
	final            = 0x80 // in the second byte
	noTag            = 0xffffffff
	statusGood       = 0x00
	statusCheck      = 0x02
	testUnitReady    = 0x00 // the first byte of a SCSI command
	stageSecurity    = 0
	stageOperational = 1
	stageFull        = 3
)

// header is the header of a PDU (RFC 7143, 11.2.1).
type header [48]byte

func (h *header) opcode() byte         { return h[0] & 0x3f }
func (h *header) number(at int) uint32 { return binary.BigEndian.Uint32(h[at:]) }
func (h *header) set(at int, n uint32) { binary.BigEndian.PutUint32(h[at:], n) }
func (h *header) extra() int64         { return int64(h[4]) * 4 }
func (h *header) size() int64          { return int64(h[5])<<16 | int64(h[6])<<8 | int64(h[7]) }

// The positions of fields that most PDUs have.
const (
	atTag      = 16
	atTransfer = 20
	atStatus   = 24 // an answer's number
	atCommand  = 24 // a request's number
	atExpected = 28
	atMost     = 32
)

// most is how many bytes of a PDU's data are kept, which is enough for all requests that matter.
const most = 4 << 10

// readPDU reads a PDU and returns its header and the beginning of its data.
func readPDU(r io.Reader) (h header, data []byte, err error) {
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return h, nil, err
	}
	if _, err := io.CopyN(io.Discard, r, h.extra()); err != nil {
		return h, nil, fmt.Errorf("read a PDU's additional header: %w", err)
	}
	data = make([]byte, min(h.size(), most))
	if _, err := io.ReadFull(r, data); err != nil {
		return h, nil, fmt.Errorf("read a PDU's data: %w", err)
	}
	rest := (h.size()+3)&^3 - int64(len(data))
	if _, err := io.CopyN(io.Discard, r, rest); err != nil {
		return h, nil, fmt.Errorf("read a PDU's data: %w", err)
	}
	return h, data, nil
}

// writePDU writes a PDU with its data, which is less than 16 MiB.
func writePDU(w io.Writer, h header, data []byte) error {
	h[5], h[6], h[7] = byte(len(data)>>16), byte(len(data)>>8), byte(len(data))
	padded := make([]byte, len(h)+(len(data)+3)&^3)
	copy(padded, h[:])
	copy(padded[len(h):], data)
	_, err := w.Write(padded)
	return err
}
