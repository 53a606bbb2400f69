package frames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Sender puts frames on a link as they are. Its owner closes it.
type Sender int

// Send opens a link of the thread's network namespace, in which the Sender stays.
func Send(link string) (Sender, error) {
	fd, err := open(link, 0)
	return Sender(fd), err
}

// Frame puts one frame on the link.
func (s Sender) Frame(frame []byte) error {
	_, err := unix.Write(int(s), frame)
	if err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	return nil
}

// Close ends a Sender.
func (s Sender) Close() error { return unix.Close(int(s)) }

// Sniffer sees the frames of a link, those that the link's own side sends left out. Its owner closes
// it.
type Sniffer int

// Sniff opens a link of the thread's network namespace, in which the Sniffer stays. Next waits for as
// long as patience.
func Sniff(link string, patience time.Duration) (Sniffer, error) {
	fd, err := open(link, unix.ETH_P_ALL)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bound the wait for frames on %s: %w", link, err)
	}
	return Sniffer(fd), nil
}

// Close ends a Sniffer.
func (s Sniffer) Close() error { return unix.Close(int(s)) }

// Frame is where a frame came from, its destination port if it is UDP over IPv4, and all of it.
type Frame struct {
	Source net.HardwareAddr
	Port   int
	Data   []byte
}

// Next is the frame that came next.
func (s Sniffer) Next() (Frame, error) {
	data := make([]byte, 2000)
	for {
		n, from, err := unix.Recvfrom(int(s), data, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Frame{}, fmt.Errorf("wait for a frame: %w", err)
		}
		if n < 14 || from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := Frame{Source: bytes.Clone(data[6:12]), Data: bytes.Clone(data[:n])}
		if n >= 42 && data[12] == 8 && data[13] == 0 && data[14] == 0x45 && data[23] == protoUDP {
			f.Port = int(binary.BigEndian.Uint16(data[36:]))
		}
		return f, nil
	}
}

func open(link string, protocol uint16) (int, error) {
	found, err := net.InterfaceByName(link)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", link, err)
	}
	wire := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(wire))
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", link, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: wire, Ifindex: found.Index}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("open %s: %w", link, err)
	}
	return fd, nil
}
