// Package ramstream takes a guest's RAM out of QEMU's stream of a saved VM.
//
// It owns the part of the stream's format that lies before the devices' state: the header, and the
// sections of RAM. It passes on all else as it is: the devices and the small blocks of memory that
// belong to them. A stream without the pages of a block is complete for a QEMU whose block has
// that content when it starts.
//
// A stream is a stranger's input. All lengths in it are bounded.
package ramstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrFormat says that a stream is not one whose RAM can be taken out. QEMU itself may accept it.
var ErrFormat = errors.New("unsupported stream of QEMU")

const (
	magic   = 0x5145564d // "QEVM"
	version = 3

	// The kinds of sections.
	sectionStart         = 1
	sectionPart          = 2
	sectionEnd           = 3
	sectionFull          = 4
	sectionConfiguration = 7
	sectionCommand       = 8
	sectionFooter        = 0x7e

	// The flags of a page's offset.
	flagZero     = 0x02
	flagSizes    = 0x04
	flagPage     = 0x08
	flagEnd      = 0x10
	flagSame     = 0x20 // the page is in the block of the page before
	flags        = pageSize - 1
	pageSize     = 4096
	ramSection   = "ram"
	ramVersion   = 4
	maxName      = 255
	maxBlocks    = 1024
	bufferLength = 1 << 20

	// rewrites is how often, on average, a page may come: QEMU sends each once of a guest that is paused. A record of
	// nine bytes fills a page, so that a short stream could keep the node busy without an end.
	rewrites = 2
)

// Split copies a stream to rest, without the pages of a block of RAM, which has one of the names, and whose size is in bytes. It
// writes these pages to ram, which must have zeros where nothing is written.
func Split(stream io.Reader, names []string, size int64, ram io.WriterAt, rest io.Writer) error {
	s := &splitter{
		from: bufio.NewReaderSize(stream, bufferLength), rest: rest, names: names, size: size,
		pages: &run{to: ram}, written: make([]uint64, size/pageSize/64+1),
		left: rewrites * (size/pageSize + 1),
	}
	if err := s.head(); err != nil {
		return unexpected(err)
	}
	for !s.devices {
		if err := s.section(); err != nil {
			return unexpected(err)
		}
	}
	if err := s.pages.flush(); err != nil {
		return err
	}
	_, err := io.Copy(rest, s.from)
	return err
}

// unexpected returns ErrFormat for a stream that ends before the devices.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends before the devices: %w", ErrFormat, err)
	}
	return err
}

// splitter is one call of Split.
type splitter struct {
	from    *bufio.Reader
	rest    io.Writer
	names   []string // of the block
	block   string   // the one of the names that the stream has
	size    int64
	pages   *run
	written []uint64 // a bit for each page
	left    int64    // how many pages may still come

	ram     uint32 // the section's id
	begun   bool   // the blocks are known
	ended   bool   // all RAM has been read
	current string // the block of the last page
	devices bool   // what follows is the devices'
	scratch [pageSize]byte
}

// take returns the next n bytes, until the next call.
func (s *splitter) take(n int) ([]byte, error) {
	b := s.scratch[:n]
	_, err := io.ReadFull(s.from, b)
	return b, err
}

// pass copies the next n bytes, and returns them until the next call.
func (s *splitter) pass(n int) ([]byte, error) {
	b, err := s.take(n)
	if err == nil {
		_, err = s.rest.Write(b)
	}
	return b, err
}

func (s *splitter) pass32() (uint32, error) {
	b, err := s.pass(4)
	return binary.BigEndian.Uint32(b), err
}

// name copies a name with its length before it.
func (s *splitter) name() (string, error) {
	b, err := s.pass(1)
	if err == nil {
		b, err = s.pass(int(b[0]))
	}
	return string(b), err
}

func (s *splitter) head() error {
	b, err := s.pass(8)
	if err == nil && (binary.BigEndian.Uint32(b) != magic || binary.BigEndian.Uint32(b[4:]) != version) {
		err = fmt.Errorf("%w: it begins with %x", ErrFormat, b)
	}
	return err
}

// section copies a section but for the block's pages. It stops before the first one of a device.
func (s *splitter) section() error {
	next, err := s.from.Peek(1)
	if err != nil {
		return err
	}
	if next[0] == sectionFull {
		if !s.ended {
			return fmt.Errorf("%w: devices come before RAM", ErrFormat)
		}
		s.devices = true
		return nil
	}
	kind, err := s.pass(1)
	if err != nil {
		return err
	}
	switch kind[0] {
	case sectionConfiguration:
		return s.configuration()
	case sectionCommand:
		b, err := s.pass(4)
		if err == nil {
			_, err = s.pass(min(int(binary.BigEndian.Uint16(b[2:])), pageSize))
		}
		return err
	case sectionFooter:
		_, err := s.pass32()
		return err
	case sectionStart:
		return s.start()
	case sectionPart, sectionEnd:
		end := kind[0] == sectionEnd
		id, err := s.pass32()
		if err == nil && (!s.begun || s.ended || id != s.ram) {
			err = fmt.Errorf("%w: section %d is not of RAM", ErrFormat, id)
		}
		if err == nil {
			err = s.content()
		}
		s.ended = end
		return err
	}
	return fmt.Errorf("%w: section of kind %d", ErrFormat, kind[0])
}

// configuration copies the name of the machine. Further settings would change the format.
func (s *splitter) configuration() error {
	n, err := s.pass32()
	if err == nil && n > maxName {
		err = fmt.Errorf("%w: a machine's name of %d bytes", ErrFormat, n)
	}
	if err == nil {
		_, err = s.pass(int(n))
	}
	return err
}

// start copies the beginning of RAM: the list of its blocks.
func (s *splitter) start() error {
	id, err := s.pass32()
	if err != nil {
		return err
	}
	name, err := s.name()
	if err != nil {
		return err
	}
	b, err := s.pass(8) // the instance and the version
	if err != nil {
		return err
	}
	if name != ramSection || s.begun || binary.BigEndian.Uint32(b) != 0 || binary.BigEndian.Uint32(b[4:]) != ramVersion {
		return fmt.Errorf("%w: section %.80q", ErrFormat, name)
	}
	s.ram, s.begun = id, true
	if b, err = s.pass(8); err != nil {
		return err
	}
	total := binary.BigEndian.Uint64(b)
	if total&flags != flagSizes {
		return fmt.Errorf("%w: RAM begins with the flags %#x", ErrFormat, total&flags)
	}
	if err := s.blocks(total &^ flags); err != nil {
		return err
	}
	return s.content()
}

// blocks copies the list of blocks, which have total bytes together.
func (s *splitter) blocks(total uint64) error {
	found := false
	for n := 0; total > 0; n++ {
		name, err := s.name()
		if err != nil {
			return err
		}
		b, err := s.pass(8)
		if err != nil {
			return err
		}
		size := binary.BigEndian.Uint64(b)
		if size > total || n == maxBlocks {
			return fmt.Errorf("%w: block %.80q of RAM is larger than all", ErrFormat, name)
		}
		total -= size
		if slices.Contains(s.names, name) {
			if s.block != "" {
				return fmt.Errorf("%w: it has the blocks %s and %s", ErrFormat, s.block, name)
			}
			s.block, found = name, size == uint64(s.size)
		}
	}
	if !found {
		return fmt.Errorf("%w: it has no block %s of %d bytes", ErrFormat, strings.Join(s.names, " or "), s.size)
	}
	return nil
}

// content reads pages until the end of a section.
func (s *splitter) content() error {
	for {
		b, err := s.take(8)
		if err != nil {
			return err
		}
		head := binary.BigEndian.Uint64(b)
		offset, set := head&^flags, head&flags
		if set == flagEnd {
			_, err := s.rest.Write(binary.BigEndian.AppendUint64(nil, head))
			return err
		}
		if kind := set &^ flagSame; kind != flagZero && kind != flagPage {
			return fmt.Errorf("%w: a page with the flags %#x", ErrFormat, set)
		}
		if set&flagSame == 0 {
			b, err := s.take(1)
			if err != nil {
				return err
			}
			if b, err = s.take(int(b[0])); err != nil {
				return err
			}
			if string(b) != s.current {
				s.current = string(b)
			}
		}
		length := pageSize
		if set&flagZero != 0 {
			length = 1 // the byte that all have
		}
		page, err := s.take(length)
		if err != nil {
			return err
		}
		if s.current == s.block {
			err = s.keep(offset, page)
		} else {
			err = s.passPage(head, page)
		}
		if err != nil {
			return err
		}
	}
}

// keep writes a page of the block. A page of one byte is filled with that.
func (s *splitter) keep(offset uint64, page []byte) error {
	if offset > uint64(s.size)-pageSize {
		return fmt.Errorf("%w: a page at %d of %d bytes", ErrFormat, offset, s.size)
	}
	if s.left--; s.left < 0 {
		return fmt.Errorf("%w: its pages come again and again", ErrFormat)
	}
	n := offset / pageSize
	bit := uint64(1) << (n % 64)
	if len(page) == 1 {
		fill := page[0]
		if fill == 0 && s.written[n/64]&bit == 0 {
			return nil
		}
		page = s.scratch[:]
		for i := range page {
			page[i] = fill
		}
	}
	s.written[n/64] |= bit
	return s.pages.add(int64(offset), page)
}

// passPage copies a page of another block.
func (s *splitter) passPage(head uint64, page []byte) error {
	b := binary.BigEndian.AppendUint64(nil, head)
	if head&flagSame == 0 {
		b = append(append(b, byte(len(s.current))), s.current...)
	}
	_, err := s.rest.Write(append(b, page...))
	return err
}

// run joins pages that follow each other.
type run struct {
	to io.WriterAt
	at int64
	b  []byte
}

func (r *run) add(at int64, page []byte) error {
	if at != r.at+int64(len(r.b)) || len(r.b) >= bufferLength {
		if err := r.flush(); err != nil {
			return err
		}
		r.at = at
	}
	r.b = append(r.b, page...)
	return nil
}

func (r *run) flush() error {
	if len(r.b) == 0 {
		return nil
	}
	_, err := r.to.WriteAt(r.b, r.at)
	r.b = r.b[:0]
	return err
}
