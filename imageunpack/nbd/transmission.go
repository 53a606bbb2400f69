package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The protocol's numbers of requests and replies.
const (
	magicRequest    = 0x25609513
	magicSimple     = 0x67446698
	magicStructured = 0x668e33ef

	commandRead   = 0
	commandStatus = 7

	flagDone = 1 << 0

	chunkNone   = 0
	chunkStatus = 5
	chunkError  = 1 << 15
)

const (
	// maxRead bounds one read, in bytes.
	maxRead = 1 << 20
	// readAhead is how much of a reply is read with its header, in bytes. The rest is read to where it belongs.
	readAhead = 4 << 10
	// maxSpan bounds the part of a disk that one request for statuses is about, in bytes.
	maxSpan = 1 << 30
	// maxChunk bounds a chunk of a reply, in bytes: QEMU sends at most 128Ki extents. maxChunks bounds the
	// chunks of a reply.
	maxChunk  = 1<<20 + 4
	maxChunks = 16
	// maxText bounds the text of an error.
	maxText = 4 << 10
)

// Flags of extents, by their contexts.
const (
	// Hole and Zero are of [ContextAllocation].
	Hole = 1 << 0
	Zero = 1 << 1
	// Dirty is of a context of changes.
	Dirty = 1 << 0
)

// Extent is a part of a disk with one status.
type Extent struct {
	Length int64
	Flags  uint32
}

// request sends a request.
func (c *Client) request(command uint16, offset int64, length int) error {
	c.handle++
	r := binary.BigEndian.AppendUint32(nil, magicRequest)
	r = binary.BigEndian.AppendUint16(r, 0)
	r = binary.BigEndian.AppendUint16(r, command)
	r = binary.BigEndian.AppendUint64(r, c.handle)
	r = binary.BigEndian.AppendUint64(r, uint64(offset))
	_, err := c.conn.Write(binary.BigEndian.AppendUint32(r, uint32(length)))
	return err
}

// within reports whether a part is one of the disk.
func (c *Client) within(offset, length int64) bool {
	return offset >= 0 && length > 0 && offset < c.size && length <= c.size-offset
}

// Read reads a part of the disk, of at most 1 MiB.
func (c *Client) Read(p []byte, offset int64) error {
	if len(c.contexts) > 0 || len(p) > maxRead || !c.within(offset, int64(len(p))) {
		return fmt.Errorf("read %d bytes at %d of %d: the client cannot", len(p), offset, c.size)
	}
	if err := c.request(commandRead, offset, len(p)); err != nil {
		return fmt.Errorf("read the disk: %w", err)
	}
	var reply struct {
		Magic, Error uint32
		Handle       uint64
	}
	err := binary.Read(c.in, binary.BigEndian, &reply)
	switch {
	case err != nil:
	case reply.Magic != magicSimple || reply.Handle != c.handle:
		err = errors.New("the NBD server's reply is not one to the request")
	case reply.Error != 0:
		err = fmt.Errorf("the NBD server answers with error %d", reply.Error)
	default:
		_, err = io.ReadFull(c.in, p)
	}
	if err != nil {
		return fmt.Errorf("read %d bytes at %d of the disk: %w", len(p), offset, err)
	}
	return nil
}

// Status returns the extents of a part of the disk by the contexts' names: of each context at least
// one, and together at most the part.
func (c *Client) Status(offset, length int64) (map[string][]Extent, error) {
	if length = min(length, maxSpan); len(c.contexts) == 0 || !c.within(offset, length) {
		return nil, fmt.Errorf("ask for the status of %d bytes at %d of %d: the client cannot", length, offset, c.size)
	}
	if err := c.request(commandStatus, offset, int(length)); err != nil {
		return nil, fmt.Errorf("ask for the disk's status: %w", err)
	}
	all := map[string][]Extent{}
	for range maxChunks {
		done, err := c.chunk(all, length)
		if err != nil {
			return nil, fmt.Errorf("read the status of the disk at %d: %w", offset, err)
		}
		if !done {
			continue
		}
		for _, name := range c.contexts {
			if len(all[name]) == 0 {
				return nil, fmt.Errorf("read the status of the disk at %d: the NBD server leaves out %s", offset, name)
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("read the status of the disk at %d: the NBD server answers without end", offset)
}

// chunk reads a part of a reply about length bytes, and reports whether it is the last one.
func (c *Client) chunk(all map[string][]Extent, length int64) (done bool, err error) {
	var head struct {
		Magic       uint32
		Flags, Kind uint16
		Handle      uint64
		Length      uint32
	}
	if err := binary.Read(c.in, binary.BigEndian, &head); err != nil {
		return false, err
	}
	if head.Magic != magicStructured || head.Handle != c.handle || head.Length > maxChunk {
		return false, errors.New("the NBD server's reply is not one to the request")
	}
	if head.Kind&chunkError != 0 && head.Length > maxText {
		return false, errors.New("the NBD server's error is too long")
	}
	data := make([]byte, head.Length)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return false, err
	}
	done = head.Flags&flagDone != 0
	switch {
	case head.Kind&chunkError != 0:
		if len(data) < 6 {
			return false, errors.New("the NBD server answers with an error that is cut off")
		}
		return false, fmt.Errorf("the NBD server answers with error %d: %.200q", binary.BigEndian.Uint32(data), data[6:])
	case head.Kind == chunkNone && done && len(data) == 0:
		return true, nil
	case head.Kind != chunkStatus || len(data) < 12 || len(data)%8 != 4:
		return false, errors.New("the NBD server's reply has no statuses")
	}
	name, known := c.contexts[binary.BigEndian.Uint32(data)]
	if !known || len(all[name]) > 0 {
		return false, errors.New("the NBD server's reply is of another context")
	}
	all[name], err = extents(data[4:], length)
	return done, err
}

// extents decodes the statuses of length bytes. The last one may be of more.
func extents(data []byte, length int64) ([]Extent, error) {
	all := make([]Extent, 0, len(data)/8)
	for ; len(data) > 0 && length > 0; data = data[8:] {
		e := Extent{Length: min(int64(binary.BigEndian.Uint32(data)), length), Flags: binary.BigEndian.Uint32(data[4:])}
		if e.Length == 0 {
			return nil, errors.New("the NBD server's reply has an extent of no bytes")
		}
		all = append(all, e)
		length -= e.Length
	}
	return all, nil
}
