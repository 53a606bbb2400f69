package netsetup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Announce has switches learn that the addresses of a guest are at the ports of this pod: it sends the frames by which
// QEMU announces a guest that came by migration. Neighbours' tables need no change, since a guest keeps its MAC
// addresses. It is for the pod that has the guest, and may be repeated. A namespace or an interface that is gone is
// no error.
func (s *Setup) Announce(ctx context.Context, p Plan) error {
	if err := errors.Join(p.check(), ctx.Err()); err != nil {
		return err
	}
	names := p.interfaces(func(n NIC) bool { return n.bridged() || n.Device == n.Interface })
	if len(names) == 0 {
		return nil
	}
	err := within(p.Netns, func() error {
		var errs []error
		for _, n := range p.NICs {
			for _, mac := range n.announced() {
				errs = append(errs, sendAnnouncement(n.Interface, mac))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("announce the guest of pod %s: %w", p.Netns, err)
	}
	return nil
}

// announced returns the addresses from which a card's frames reach its network: the guest's, and that of its router,
// which sends for a guest with IPv6.
func (n NIC) announced() []MAC {
	switch {
	case n.bridged() && n.IPv6.valid():
		return []MAC{n.GuestMAC, n.BridgeMAC}
	case n.bridged(), n.plugged() && n.Device == n.Interface:
		return []MAC{n.GuestMAC}
	}
	return nil
}

// sendAnnouncement sends an announcement on an interface in the thread's network namespace. It needs no address there.
func sendAnnouncement(name string, mac MAC) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil // CNI has removed it
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for frames: %w", err)
	}
	defer unix.Close(fd)
	err = unix.Sendto(fd, announcementFrame(mac), 0, &unix.SockaddrLinklayer{Ifindex: link.Index})
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("send on %s: %w", name, err)
	}
	return nil
}

// etherTypeRARP is that of RFC 903.
const etherTypeRARP = 0x8035

// announcementFrame returns a broadcast request of RARP for the sender's own address, as long as the least Ethernet frame.
func announcementFrame(mac MAC) []byte {
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(f[6:], mac)
	binary.BigEndian.PutUint16(f[12:], etherTypeRARP)
	copy(f[14:], []byte{0, 1, 8, 0, 6, 4, 0, 3})
	copy(f[22:], mac)
	copy(f[32:], mac)
	return f
}
