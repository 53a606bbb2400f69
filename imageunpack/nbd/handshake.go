package nbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// The protocol's numbers of the handshake.
const (
	magicServer = 0x4e42444d41474943
	magicOption = 0x49484156454f5054
	magicReply  = 0x0003e889045565a9

	flagFixed   = 1 << 0
	flagNoZeros = 1 << 1

	optionGo         = 7
	optionStructured = 8
	optionSetContext = 10

	replyAck     = 1
	replyInfo    = 3
	replyContext = 4
	replyError   = 1 << 31

	infoExport = 0
)

const (
	// maxOption bounds an answer in the handshake, in bytes, and maxReplies the answers to an option.
	maxOption  = 8 << 10
	maxReplies = 64
	// maxName bounds the names of disks and contexts, in bytes.
	maxName = 4096
)

// ContextAllocation is the context that says which parts of a disk are zeros.
const ContextAllocation = "base:allocation"

// Client reads one disk of a server. It does one thing at a time.
type Client struct {
	conn   io.ReadWriter
	in     *bufio.Reader
	size   int64
	handle uint64
	// contexts are the names of the server's numbers of contexts; empty for simple replies.
	contexts map[uint32]string
}

// Open opens a disk by its name on a new connection, which stays the caller's. A client with contexts
// asks for statuses alone, and one without for content alone.
func Open(conn io.ReadWriter, disk string, contexts ...string) (*Client, error) {
	c := &Client{conn: conn, in: bufio.NewReaderSize(conn, readAhead), contexts: map[uint32]string{}}
	if err := c.greet(); err != nil {
		return nil, fmt.Errorf("begin with the NBD server: %w", err)
	}
	if len(contexts) > 0 {
		if err := c.option(optionStructured, nil, nil); err != nil {
			return nil, fmt.Errorf("ask the NBD server for structured replies: %w", err)
		}
		if err := c.setContexts(disk, contexts); err != nil {
			return nil, fmt.Errorf("ask the NBD server for statuses of disk %.80q: %w", disk, err)
		}
	}
	if err := c.open(disk); err != nil {
		return nil, fmt.Errorf("open disk %.80q of the NBD server: %w", disk, err)
	}
	return c, nil
}

// Size returns the disk's size in bytes.
func (c *Client) Size() int64 { return c.size }

func (c *Client) greet() error {
	var hello struct {
		Server, Option uint64
		Flags          uint16
	}
	if err := binary.Read(c.in, binary.BigEndian, &hello); err != nil {
		return err
	}
	if hello.Server != magicServer || hello.Option != magicOption || hello.Flags&flagFixed == 0 || hello.Flags&flagNoZeros == 0 {
		return errors.New("it is no NBD server of the fixed newstyle")
	}
	return binary.Write(c.conn, binary.BigEndian, uint32(flagFixed|flagNoZeros))
}

// option sends an option, and takes the answers until the server has acknowledged it.
func (c *Client) option(option uint32, data []byte, take func(kind uint32, data []byte) error) error {
	request := binary.BigEndian.AppendUint64(nil, magicOption)
	request = binary.BigEndian.AppendUint32(request, option)
	request = binary.BigEndian.AppendUint32(request, uint32(len(data)))
	if _, err := c.conn.Write(append(request, data...)); err != nil {
		return err
	}
	for range maxReplies {
		var reply struct {
			Magic                uint64
			Option, Kind, Length uint32
		}
		if err := binary.Read(c.in, binary.BigEndian, &reply); err != nil {
			return err
		}
		if reply.Magic != magicReply || reply.Option != option || reply.Length > maxOption {
			return errors.New("its answer is not one to the option")
		}
		data := make([]byte, reply.Length)
		if _, err := io.ReadFull(c.in, data); err != nil {
			return err
		}
		switch {
		case reply.Kind&replyError != 0:
			return fmt.Errorf("it answers with error %d: %.200q", reply.Kind&^replyError, data)
		case reply.Kind == replyAck:
			return nil
		case take != nil:
			if err := take(reply.Kind, data); err != nil {
				return err
			}
		}
	}
	return errors.New("it answers without end")
}

// setContexts asks for statuses by contexts. The server must have all of them.
func (c *Client) setContexts(disk string, contexts []string) error {
	data := appendText(nil, disk)
	data = binary.BigEndian.AppendUint32(data, uint32(len(contexts)))
	for _, name := range contexts {
		data = appendText(data, name)
	}
	err := c.option(optionSetContext, data, func(kind uint32, data []byte) error {
		if kind != replyContext || len(data) < 4 {
			return errors.New("its answer is no context")
		}
		name := string(data[4:])
		if !slices.Contains(contexts, name) {
			return fmt.Errorf("its context %.80q was not asked for", name)
		}
		c.contexts[binary.BigEndian.Uint32(data)] = name
		return nil
	})
	if err == nil && len(c.contexts) != len(contexts) {
		err = fmt.Errorf("it has %d of the contexts %q", len(c.contexts), contexts)
	}
	return err
}

// open ends the handshake.
func (c *Client) open(disk string) error {
	if len(disk) > maxName {
		return errors.New("the name is too long")
	}
	known := false
	err := c.option(optionGo, append(appendText(nil, disk), 0, 0), func(kind uint32, data []byte) error {
		if kind != replyInfo || len(data) < 2 || binary.BigEndian.Uint16(data) != infoExport {
			return nil
		}
		if len(data) != 12 {
			return errors.New("its description of the disk has another length")
		}
		size := binary.BigEndian.Uint64(data[2:])
		if size > math.MaxInt64 {
			return fmt.Errorf("the disk's size %d is too large", size)
		}
		c.size, known = int64(size), true
		return nil
	})
	if err == nil && !known {
		err = errors.New("it does not say the disk's size")
	}
	return err
}

// appendText appends a text after its length.
func appendText(data []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(data, uint32(len(text))), text...)
}
