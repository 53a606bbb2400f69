package netsetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Sysctl is a setting of the pod's network namespace with a different value while the VM exists.
type Sysctl struct {
	// Key is its path below /proc/sys/net, which shows each thread its own namespace's.
	Key string `json:"key"`
	// Value is the one while the VM exists, Original the pod's.
	Value    string `json:"value"`
	Original string `json:"original"`
}

// readSysctls adds the settings that must change to the Plan. It runs in the pod's namespace, and
// passes over settings that the kernel does not have.
func (p *Plan) readSysctls(h *netlink.Handle) error {
	wanted, err := p.wantedSysctls(h)
	if err != nil {
		return err
	}
	for _, s := range wanted {
		s.Original, err = readSysctl(s.Key)
		if errors.Is(err, fs.ErrNotExist) || err == nil && s.Original == s.Value {
			continue
		}
		if err != nil {
			return err
		}
		p.Sysctls = append(p.Sysctls, s)
	}
	return nil
}

// wantedSysctls returns the settings in the order in which they must be set.
func (p *Plan) wantedSysctls(h *netlink.Handle) ([]Sysctl, error) {
	if len(p.wired()) == 0 {
		return nil, nil
	}
	// The pod's IP filters and connection tracking must not see frames that the bridge forwards;
	// by the kernel's default they do.
	wanted := []Sysctl{
		{Key: "bridge/bridge-nf-call-iptables", Value: "0"},
		{Key: "bridge/bridge-nf-call-ip6tables", Value: "0"},
		{Key: "bridge/bridge-nf-call-arptables", Value: "0"},
	}
	for _, n := range p.NICs {
		if n.masqueraded() && n.IPv4.valid() {
			wanted = append(wanted, Sysctl{Key: path.Join("ipv4/conf", n.Interface, "forwarding"), Value: "1"})
		}
	}
	if !slices.ContainsFunc(p.NICs, func(n NIC) bool { return n.IPv6.valid() }) {
		return wanted, nil
	}
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		key := path.Join("ipv6/conf", link.Attrs().Name, "accept_ra")
		if value, err := readSysctl(key); err == nil && value == "1" {
			wanted = append(wanted, Sysctl{Key: key, Value: p.acceptRA(link.Attrs().Name)})
		}
	}
	// IPv6 forwarding can't be enabled for one interface alone.
	return append(wanted, Sysctl{Key: allForwarding, Value: "1"}), nil
}

// acceptRA returns the setting of an interface that accepts router advertisements. A host that
// forwards accepts them only with the value 2. The interface of a masqueraded guest keeps the
// gateway that CNI gave it, if any.
func (p *Plan) acceptRA(link string) string {
	for _, n := range p.NICs {
		if n.Interface == link && n.masqueraded() && n.Original.hasGateway6() {
			return "0"
		}
	}
	return "2"
}

func setSysctls(_ context.Context, p Plan) error {
	return within(p.Netns, func() error {
		for _, s := range p.Sysctls {
			if err := writeSysctl(s.Key, s.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// restoreSysctls passes over interfaces that no longer exist.
func restoreSysctls(_ context.Context, p Plan) error {
	return withinFirst(p, func(*netlink.Handle, netlink.Link) error {
		for _, s := range slices.Backward(p.Sysctls) {
			err := writeSysctl(s.Key, s.Original)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

const (
	sysctls       = "/proc/sys/net"
	allForwarding = "ipv6/conf/all/forwarding"
)

func readSysctl(key string) (string, error) {
	root, err := os.OpenRoot(sysctls)
	if err != nil {
		return "", err
	}
	defer root.Close()
	value, err := root.ReadFile(key)
	if err != nil {
		return "", fmt.Errorf("read sysctl net/%s: %w", key, err)
	}
	return strings.TrimSpace(string(value)), nil
}

// writeSysctl sets a sysctl that does not have the value yet.
func writeSysctl(key, value string) error {
	if now, err := readSysctl(key); err != nil || now == value {
		return err
	}
	root, err := os.OpenRoot(sysctls)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(key, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set sysctl net/%s: %w", key, err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set sysctl net/%s to %s: %w", key, value, err)
	}
	return nil
}
