package netsetup

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A CNI plug-in makes the device of a card with the binding Tap, as KubeVirt's network binding plug-ins
// do. QEMU, which is in libvirtd's network namespace, gets it open: no device leaves the pod, so what the
// plug-in connected it to stays.

// PluggedDevice is a card's device, open once for each of its queues.
type PluggedDevice struct {
	// Card is the caller's name of the card.
	Card  string
	Files []*os.File
}

// Close closes the files.
func (d PluggedDevice) Close() {
	for _, f := range d.Files {
		_ = f.Close() // nothing was written
	}
}

// OpenPlugged opens the devices of the cards with the binding Tap. The caller must close them. The error is
// ErrInUse if a device is open already.
func (s *Setup) OpenPlugged(ctx context.Context, p Plan) (all []PluggedDevice, err error) {
	if err := errors.Join(p.check(), ctx.Err()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, d := range all {
				d.Close()
			}
			all = nil
		}
	}()
	for _, n := range p.NICs {
		if !n.plugged() {
			continue
		}
		one := PluggedDevice{Card: n.Card}
		err := withinLink(p.Netns, func(h *netlink.Handle) (err error) {
			one.Files, err = n.open(h)
			return err
		})
		all = append(all, one)
		if err != nil {
			return all, fmt.Errorf("open interface %s of pod network %s: %w", n.Device, p.Netns, err)
		}
	}
	return all, nil
}

// checkDevices returns an error for a bridge or a device that is not the card's.
func (n NIC) checkDevices() error {
	if !n.plugged() {
		return checkBridge(n.Bridge)
	}
	if n.Bridge != "" {
		return fmt.Errorf("a card with the binding %s has the bridge %q", Tap, n.Bridge)
	}
	if n.Device == "" { // Plan has not read the namespace yet
		return nil
	}
	return checkInterface(n.Device)
}

// pluggedName returns the name that a plug-in gives to a tap beside an interface, as KubeVirt has it: tap0
// beside eth0, and tap with the rest of the name beside another.
func pluggedName(link string) string {
	if link == podInterface || len(link) <= len("pod") {
		return "tap0"
	}
	return "tap" + link[len("pod"):]
}

// readPlugged finds the card's device. The interface's own MAC address and MTU are the card's, as with
// KubeVirt.
func (n *NIC) readPlugged(h *netlink.Handle, wanted Interface) error {
	link, err := findLink(h, n.Interface)
	if err != nil {
		return err
	}
	if link == nil {
		return n.absent()
	}
	if n.Original, err = readSnapshot(h, link); err != nil {
		return err
	}
	mac := wanted.MAC
	if mac == nil {
		mac = link.Attrs().HardwareAddr
	}
	n.MTU, n.OriginalMAC, n.PodMAC, n.GuestMAC = link.Attrs().MTU, MAC(link.Attrs().HardwareAddr), MAC(link.Attrs().HardwareAddr), MAC(mac)
	device, err := findLink(h, pluggedName(n.Interface))
	if err != nil {
		return err
	}
	if device == nil {
		device = link
	}
	n.Device = device.Attrs().Name
	if len(mac) != 6 || mac[0]&1 != 0 || MAC(mac).isZero() {
		return fmt.Errorf("%w: %s of interface %s is not an address of a network card: it must be unicast", ErrUnsuited, mac, n.Interface)
	}
	queues, err := queuesOf(device)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w, and the network binding plug-in of card %q should have made a tap or macvtap %s, or %s beside it",
			ErrUnsuited, err, n.Card, n.Interface, pluggedName(n.Interface))
	case !queues && n.Queues > 1:
		return fmt.Errorf("%w: tap %s has one queue: remove networkInterfaceMultiqueue from the VM, or have the plug-in make it with multi_queue",
			ErrUnsuited, n.Device)
	}
	return nil
}

// queuesOf reports whether a device can have several queues. The error is for a link that QEMU can't open.
func queuesOf(link netlink.Link) (bool, error) {
	if link.Type() == "macvtap" {
		return true, nil
	}
	tap, ok := link.(*netlink.Tuntap)
	if !ok || tap.Mode != netlink.TUNTAP_MODE_TAP {
		return false, fmt.Errorf("interface %s is a %s", link.Attrs().Name, link.Type())
	}
	return tap.Flags&netlink.TUNTAP_MULTI_QUEUE != 0, nil
}

// open opens the card's device in the thread's network namespace, once for each queue.
func (n NIC) open(h *netlink.Handle) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			PluggedDevice{Files: files}.Close()
			files = nil
		}
	}()
	link, err := h.LinkByName(n.Device)
	if err != nil {
		return nil, err
	}
	multi, err := queuesOf(link)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsuited, err)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if _, tap := link.(*netlink.Tuntap); multi && (tap || n.Queues > 1) {
		flags |= unix.IFF_MULTI_QUEUE
	}
	for range max(n.Queues, 1) {
		f, err := openQueue(link)
		if err != nil {
			return files, err
		}
		files = append(files, f)
		if err := attachQueue(f, n.Device, flags); err != nil {
			return files, err
		}
	}
	return files, nil
}

// attachQueue attaches an open queue to the device of its name, and sets how frames look.
func attachQueue(f *os.File, name string, flags uint16) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(flags)
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.IoctlIfreq(int(fd), unix.TUNSETIFF, request) }); err != nil {
		return err
	}
	if errors.Is(failed, unix.EBUSY) {
		return fmt.Errorf("%w: the device is open in another process", ErrInUse)
	}
	return failed
}
