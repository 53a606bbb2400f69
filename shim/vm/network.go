package vm

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func (l *launch) makeNetwork(ctx context.Context) error {
	if len(l.rec.Spec.Interfaces) == 0 {
		return nil
	}
	dns, err := l.podDNS(l.rec.Sandbox.Value)
	if err != nil {
		return err
	}
	interfaces, err := l.interfaces()
	if err != nil {
		return err
	}
	plan, err := l.Network.Plan(ctx, l.rec.ID, netsetup.Pod{
		Netns:       l.pod.netns,
		Hostname:    l.rec.Spec.Hostname,
		Nameservers: dns.servers,
		Searches:    dns.searches,
		Interfaces:  interfaces,
	})
	if err != nil {
		return err
	}
	l.rec.Network = &plan
	if err := l.put(l.c, l.rec); err != nil {
		return err
	}
	// The taps are all that libvirtd needs to go on.
	if err := l.Network.Taps(ctx, plan); err != nil {
		return err
	}
	l.beside.network(func(ctx context.Context) error { return l.Network.Apply(ctx, plan) })
	l.beside.run(l.serveNetwork)
	return nil
}

func (l *launch) serveNetwork(ctx context.Context) error {
	if err := l.beside.networkMade(ctx); err != nil {
		return err
	}
	pid, err := l.Network.Serve(ctx, *l.rec.Network)
	if err != nil || !l.rec.Network.Served() {
		return err
	}
	return l.group.Add(pid)
}

// interfaces are the pod's, one for each card of the machine.
func (l *launch) interfaces() ([]netsetup.Interface, error) {
	var all []netsetup.Interface
	for _, spec := range l.rec.Spec.Interfaces {
		wanted, err := podInterface(spec)
		if err != nil {
			return nil, fmt.Errorf("network card %q: %w: %w", spec.Name, ErrInvalid, err)
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

func (l *launch) removeNetwork(ctx context.Context) error {
	if l.rec.Network == nil {
		return nil
	}
	if err := l.Network.Undo(ctx, *l.rec.Network); err != nil {
		return err
	}
	l.rec.Network = nil
	return nil
}

// connect moves the taps into the pod as soon as QEMU has them open, which it
// has from libvirtd when it is born.
func (l *launch) connect(ctx context.Context) error {
	if l.rec.Network == nil {
		return nil
	}
	if err := l.beside.networkMade(ctx); err != nil {
		return err
	}
	if _, err := l.Driver.AwaitProcess(ctx, l.rec.Domain.Name); err != nil {
		return err
	}
	return l.Network.Connect(ctx, *l.rec.Network)
}
