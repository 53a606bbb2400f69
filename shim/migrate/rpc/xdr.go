package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errEncoding is returned for bytes that are not of the protocol.
var errEncoding = errors.New("libvirtd's answer cannot be decoded")

// encoder appends values in XDR (RFC 4506).
type encoder []byte

func (e *encoder) uint(v uint32) { *e = binary.BigEndian.AppendUint32(*e, v) }
func (e *encoder) long(v uint64) { *e = binary.BigEndian.AppendUint64(*e, v) }

// opaque appends bytes of a variable length, padded to four.
func (e *encoder) opaque(b []byte) {
	e.uint(uint32(len(b)))
	e.fixed(b)
}

func (e *encoder) fixed(b []byte) {
	*e = append(*e, b...)
	*e = append(*e, make([]byte, -len(b)&3)...)
}

func (e *encoder) string(s string) { e.opaque([]byte(s)) }

// optional appends a string that may be missing: an empty one is missing.
func (e *encoder) optional(s string) {
	if s == "" {
		e.uint(0)
		return
	}
	e.uint(1)
	e.string(s)
}

// decoder reads values in XDR. After an error, all values are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.rest)) {
		d.err = fmt.Errorf("%w: %d of %d bytes", errEncoding, len(d.rest), n)
	}
	if d.err != nil {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uint() uint32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// opaque returns bytes of a variable length. They alias the answer.
func (d *decoder) opaque() []byte {
	n := int(d.uint())
	b := d.take(n)
	d.take(-n & 3)
	return b
}

func (d *decoder) optional() string {
	if d.uint() == 0 {
		return ""
	}
	return string(d.opaque())
}
