package supervisor

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

// network makes the node's empty network namespace fit for pods: loopback, and forwarding
// between pods, which is a setting of this namespace alone.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	const forward = "/proc/sys/net/ipv4/ip_forward"
	if err := os.WriteFile(forward, []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("let the node forward: %w", err)
	}
	return nil
}
