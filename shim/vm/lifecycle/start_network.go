package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// makeTaps plans the network, records the plan, makes the taps, which are all that libvirtd
// needs of it, and opens those that plug-ins made.
func (s *start) makeTaps(ctx context.Context) error {
	if len(s.rec.Spec.Interfaces) == 0 {
		return nil
	}
	plan, err := s.parts.plan(ctx, s.rec, s.rec.ID, s.netns, s.rec.Spec.Interfaces)
	if refused, ok := errors.AsType[*netsetup.MACError](err); ok {
		return fmt.Errorf("%s: spec.domain.devices.interfaces[%d].macAddress: %w; leave it out, use masquerade or a secondary network, "+
			"or have the node's administrator set vm.pod_network_mac in the shim's config", vmspec.AnnotationVMI, refused.Card, err)
	}
	if err != nil {
		return err
	}
	s.plan = &plan
	if err := s.parts.table.Put(s.vm, s.record()); err != nil {
		return err
	}
	if err := s.parts.network.Taps(ctx, plan); err != nil {
		return err
	}
	s.plugged, err = s.parts.network.OpenPlugged(ctx, plan)
	return err
}

// plan plans a network with an ID in a network namespace, for some of a VM's cards.
func (p parts) plan(ctx context.Context, r record.Container, id, netns string, cards []vmspec.Interface) (netsetup.Plan, error) {
	dns, err := podDNS(r.Sandbox.Value, p.resolvConf)
	if err != nil {
		return netsetup.Plan{}, err
	}
	interfaces, err := podInterfaces(cards)
	if err != nil {
		return netsetup.Plan{}, err
	}
	if r.Incoming != "" {
		port := move.Port(r.Spec)
		for i := range interfaces {
			interfaces[i].Reserved = port
		}
	}
	return p.network.Plan(ctx, id, netsetup.Pod{
		Netns:       netns,
		Hostname:    r.Spec.Hostname,
		Nameservers: dns.servers,
		Searches:    withSubdomain(dns.searches, r.Spec.Subdomain, r.Sandbox.Value.GetMetadata().GetNamespace()),
		Interfaces:  interfaces,
		Silent:      vmspec.AddressMoves(r.Sandbox.Value.GetAnnotations()),
		Waits:       r.Incoming != "",
	})
}

// makeBridge makes the pod's side of the network.
func (s *start) makeBridge(ctx context.Context) error {
	if s.plan == nil {
		return nil
	}
	return s.parts.network.Apply(ctx, *s.plan)
}

func (s *start) serveDHCP(ctx context.Context) error {
	if s.plan == nil {
		return nil
	}
	return s.parts.serve(ctx, s.rec, *s.plan)
}

// serve has dnsmasq serve the guest in the VM's cgroup.
func (p parts) serve(ctx context.Context, r record.Container, plan netsetup.Plan) error {
	pid, err := p.network.Serve(ctx, plan)
	if err != nil || !plan.Served() {
		return err
	}
	return p.groups.Add(r, pid)
}

// connect moves the taps into the pod. QEMU has them open: it has them from
// libvirtd at its birth.
func (s *start) connect(ctx context.Context) error {
	if s.plan == nil {
		return nil
	}
	return s.parts.network.Connect(ctx, *s.plan)
}

// podInterfaces are the pod's interfaces, one for each card of the guest.
func podInterfaces(specs []vmspec.Interface) ([]netsetup.Interface, error) {
	var all []netsetup.Interface
	for _, spec := range specs {
		wanted, err := podInterface(spec)
		if err != nil {
			return nil, fmt.Errorf("network card %q: %w: %w", spec.Name, vmerrors.ErrInvalid, err)
		}
		all = append(all, wanted)
	}
	return all, nil
}

func podInterface(spec vmspec.Interface) (netsetup.Interface, error) {
	wanted := netsetup.Interface{
		Card: spec.Name, Name: spec.Device, Binding: netsetup.Binding(spec.Binding), Queues: int(spec.Queues),
	}
	var err error
	if spec.MAC != "" {
		if wanted.MAC, err = net.ParseMAC(spec.MAC); err != nil {
			return wanted, err
		}
	}
	for _, p := range spec.Ports {
		wanted.Ports = append(wanted.Ports, netsetup.Port(p))
	}
	if wanted.DHCP, err = dhcpOptions(spec.DHCP); err != nil {
		return wanted, err
	}
	if spec.NetworkCIDR != "" {
		if wanted.IPv4, err = netip.ParsePrefix(spec.NetworkCIDR); err != nil {
			return wanted, err
		}
	}
	if spec.NetworkCIDR6 != "" {
		wanted.IPv6, err = netip.ParsePrefix(spec.NetworkCIDR6)
	}
	return wanted, err
}

func dhcpOptions(given *vmspec.DHCPOptions) (netsetup.DHCPOptions, error) {
	if given == nil {
		return netsetup.DHCPOptions{}, nil
	}
	wanted := netsetup.DHCPOptions{BootFile: given.BootFile, TFTPServer: given.TFTPServer, Private: given.Private}
	for _, server := range given.NTPServers {
		address, err := netip.ParseAddr(server)
		if err != nil {
			return wanted, err
		}
		wanted.NTPServers = append(wanted.NTPServers, address)
	}
	return wanted, nil
}
