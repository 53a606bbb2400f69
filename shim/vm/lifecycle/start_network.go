package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/nodevirt/nodevirt/netsetup"
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
	dns, err := podDNS(s.rec.Sandbox.Value, s.parts.resolvConf)
	if err != nil {
		return err
	}
	interfaces, err := podInterfaces(s.rec.Spec.Interfaces)
	if err != nil {
		return err
	}
	if s.rec.Incoming != "" {
		port := move.Port(s.rec.Spec)
		for i := range interfaces {
			interfaces[i].Reserved = port
		}
	}
	plan, err := s.parts.network.Plan(ctx, s.rec.ID, netsetup.Pod{
		Netns:       s.netns,
		Hostname:    s.rec.Spec.Hostname,
		Nameservers: dns.servers,
		Searches:    withSubdomain(dns.searches, s.rec.Spec.Subdomain, s.rec.Sandbox.Value.GetMetadata().GetNamespace()),
		Interfaces:  interfaces,
		Silent:      vmspec.AddressMoves(s.rec.Sandbox.Value.GetAnnotations()),
	})
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
	pid, err := s.parts.network.Serve(ctx, *s.plan)
	if err != nil || !s.plan.Served() {
		return err
	}
	return s.parts.groups.Add(s.rec, pid)
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
