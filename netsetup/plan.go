package netsetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Pod describes a pod.
type Pod struct {
	// Netns is the path of the pod's network namespace.
	Netns string
	// Hostname becomes the guest's by DHCP, up to its first dot. May be empty.
	Hostname string
	// Nameservers and Searches are the pod's DNS settings. DHCPv4 carries the IPv4 servers.
	Nameservers []netip.Addr
	Searches    []string
	// Interfaces are those for which the guest gets a card, in this order; none means eth0.
	Interfaces []Interface
	// Silent says that another pod may have the same address: see [Setup.Silence].
	Silent bool
	// Waits says that the guest is in another pod, and comes by migration. Until [Setup.Own] this pod sends nothing
	// on the networks of the guest's cards.
	Waits bool
}

// Interface is one of the pod's interfaces, and the settings of the guest's card for it.
type Interface struct {
	// Card names the guest's card, for the caller; see [NIC].
	Card string
	// Name is the interface's in the pod, "eth0" if empty.
	Name string
	// MAC is the address of the guest's card. Nil means the interface's own, or with Masquerade a
	// default one.
	MAC net.HardwareAddr
	// Binding is Bridge if empty.
	Binding Binding
	// Queues is the number of queues that work in parallel; 0 means one.
	Queues int
	// Ports are forwarded to a masqueraded guest; the others stay the pod's. None means all.
	Ports []Port
	// Reserved is a TCP port that stays the pod's, whatever Ports says; 0 for none.
	Reserved uint16
	// DHCP are further options of DHCPv4 for the guest.
	DHCP DHCPOptions
	// IPv4 and IPv6 are the private networks of a masqueraded guest. The invalid prefix means
	// KubeVirt's default.
	IPv4, IPv6 netip.Prefix
}

// Plan describes the network of one VM. It holds all that Undo needs, and is a plain value for a
// JSON file.
type Plan struct {
	ID    string `json:"id"`
	Netns string `json:"netns"`

	Hostname    string       `json:"hostname,omitempty"`
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	Searches    []string     `json:"searches,omitempty"`

	// NICs are the guest's cards, in the order of Pod.Interfaces.
	NICs []NIC `json:"nics,omitempty"`

	// Silent keeps the pod's own network stack silent if the guest takes its address.
	Silent bool `json:"silent,omitempty"`
	// Waits keeps the pod from the networks of a guest that comes.
	Waits bool `json:"waits,omitempty"`

	// Sysctls are settings of the pod that change while the VM exists.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
}

// Plan reads a pod's namespace and decides names and addresses for the VM id, which is a
// container's id in hex digits. It changes nothing. The error is ErrNoAddress for a pod without
// an address, and ErrInUse if another VM has the interface.
func (s *Setup) Plan(ctx context.Context, id string, pod Pod) (Plan, error) {
	p := Plan{ID: id, Netns: pod.Netns, Silent: pod.Silent, Waits: pod.Waits}
	interfaces := pod.Interfaces
	if len(interfaces) == 0 {
		interfaces = []Interface{{}}
	}
	if err := errors.Join(checkID(id), checkNetns(pod.Netns)); err != nil {
		return Plan{}, err
	}
	for i, wanted := range interfaces {
		if err := wanted.checkBinding(); err != nil {
			return Plan{}, err
		}
		p.NICs = append(p.NICs, newNIC(id, i, wanted))
	}
	if err := errors.Join(p.check(), p.setNames(pod), ctx.Err()); err != nil {
		return Plan{}, err
	}
	if own, err := isCurrent(p.Netns); err != nil {
		return Plan{}, fmt.Errorf("plan pod network: %w", err)
	} else if own {
		return Plan{}, fmt.Errorf("network namespace %s is the node's own: "+
			"a VM needs a pod with its own network (no hostNetwork)", p.Netns)
	}
	err := withinLink(p.Netns, func(h *netlink.Handle) error {
		for i := range p.NICs {
			if err := p.NICs[i].read(h, id, interfaces[i]); err != nil {
				return err
			}
			if err := p.NICs[i].checkMAC(i); err != nil && !s.anyMAC {
				return err
			}
		}
		return p.readSysctls(h)
	})
	if err != nil {
		return Plan{}, fmt.Errorf("plan network of pod %s: %w", p.Netns, err)
	}
	return p, nil
}

// check returns an error for names that are not a VM's own: a Plan comes from a file.
func (p *Plan) check() error {
	errs := []error{checkID(p.ID), checkNetns(p.Netns)}
	if len(p.NICs) == 0 || len(p.NICs) > maxNICs {
		errs = append(errs, fmt.Errorf("a VM has 1 to %d network cards, not %d", maxNICs, len(p.NICs)))
	}
	taken := map[string]bool{}
	for _, n := range p.NICs {
		errs = append(errs, checkInterface(n.Interface), n.checkDevices(), checkTap(n.Tap, p.ID))
		if taken[n.Interface] {
			errs = append(errs, fmt.Errorf("interface %s is named twice", n.Interface))
		}
		taken[n.Interface] = true
		errs = append(errs, n.DHCP.check())
	}
	return errors.Join(errs...)
}
