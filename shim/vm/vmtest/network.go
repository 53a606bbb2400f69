package vmtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/netsetup"
)

// Network is a fake of [netsetup.Setup].
type Network struct {
	script *Script

	mu        sync.Mutex
	changed   chan struct{}
	made      map[string]map[string]bool // by VM: taps, bridge, connected
	bridges   map[string]string          // VMs by the network namespaces that have their bridges
	servers   map[string]int             // dnsmasq's process id, by VM
	lastPID   int
	silent    []string // names of network namespaces whose guests have left
	announced map[string]int
}

// NewNetwork returns a node without networks of VMs.
func NewNetwork(s *Script) *Network {
	return &Network{
		script: s, changed: make(chan struct{}), made: map[string]map[string]bool{}, bridges: map[string]string{}, servers: map[string]int{}, lastPID: 1 << 21,
	}
}

// Plan implements netsetup's. Each card gets an IPv4 and an IPv6 address.
func (n *Network) Plan(ctx context.Context, id string, pod netsetup.Pod) (netsetup.Plan, error) {
	if err := n.script.enter(ctx, "Network.Plan"); err != nil {
		return netsetup.Plan{}, err
	}
	if n.taken(pod.Netns) {
		return netsetup.Plan{}, netsetup.ErrInUse
	}
	p := netsetup.Plan{
		ID: id, Netns: pod.Netns, Hostname: pod.Hostname, Nameservers: pod.Nameservers, Searches: pod.Searches,
	}
	interfaces := pod.Interfaces
	if len(interfaces) == 0 {
		interfaces = []netsetup.Interface{{}}
	}
	for i, wanted := range interfaces {
		mac := wanted.MAC
		if mac == nil {
			mac = net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
		}
		nic := netsetup.NIC{
			Card:    wanted.Card,
			Binding: wanted.Binding, Interface: wanted.Name, Queues: wanted.Queues, Reserved: wanted.Reserved, MTU: 1500,
			Bridge: fmt.Sprintf("br%d", i), Tap: fmt.Sprintf("tap%d-%.8s", i, id), GuestMAC: netsetup.MAC(mac),
		}
		nic.IPv4.Address = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, 1, byte(10 + i)}), 24)
		nic.IPv6.Address = netip.MustParsePrefix(fmt.Sprintf("fd00:88::%d/64", 10+i))
		p.NICs = append(p.NICs, nic)
	}
	return p, nil
}

func (n *Network) make(ctx context.Context, call string, p netsetup.Plan, parts ...string) error {
	if err := n.script.enter(ctx, "Network."+call); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made[p.ID] == nil {
		n.made[p.ID] = map[string]bool{}
	}
	for _, part := range parts {
		n.made[p.ID][part] = true
	}
	return nil
}

func (n *Network) taken(netns string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bridges[netns] != ""
}

// Taps implements netsetup's.
func (n *Network) Taps(ctx context.Context, p netsetup.Plan) error {
	return n.make(ctx, "Taps", p, "taps")
}

// OpenPlugged implements netsetup's. The device of a card with the binding Tap is a file.
func (n *Network) OpenPlugged(ctx context.Context, p netsetup.Plan) ([]netsetup.PluggedDevice, error) {
	if err := n.script.enter(ctx, "Network.OpenPlugged"); err != nil {
		return nil, err
	}
	var all []netsetup.PluggedDevice
	for _, nic := range p.NICs {
		if nic.Binding != netsetup.Tap {
			continue
		}
		f, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		all = append(all, netsetup.PluggedDevice{Card: nic.Card, Files: []*os.File{f}})
	}
	return all, nil
}

// Apply implements netsetup's.
func (n *Network) Apply(ctx context.Context, p netsetup.Plan) error {
	if err := n.make(ctx, "Apply", p, "taps", "bridge"); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bridges[p.Netns] = p.ID
	return nil
}

// Connect implements netsetup's. It needs what Apply makes.
func (n *Network) Connect(ctx context.Context, p netsetup.Plan) error {
	if !n.Has(p.ID, "bridge") {
		return errors.New("connect: there is no bridge")
	}
	return n.make(ctx, "Connect", p, "connected")
}

// Undo implements netsetup's.
func (n *Network) Undo(ctx context.Context, p netsetup.Plan) error {
	if err := n.script.enter(ctx, "Network.Undo"); err != nil {
		return err
	}
	n.remove(p.ID)
	return nil
}

func (n *Network) remove(id string) {
	n.Kill(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.made, id)
	maps.DeleteFunc(n.bridges, func(_, of string) bool { return of == id })
}

// Release implements netsetup's.
func (n *Network) Release(ctx context.Context, one netsetup.Plan) error {
	if err := n.script.enter(ctx, "Network.Release"); err != nil {
		return err
	}
	for _, nic := range one.NICs {
		if nic.Binding == netsetup.Tap {
			return fmt.Errorf("the device of card %s is its network binding plug-in's", nic.Card)
		}
	}
	return nil
}

// Own implements netsetup's.
func (n *Network) Own(ctx context.Context, _ netsetup.Plan) error {
	return n.script.enter(ctx, "Network.Own")
}

// Announce implements netsetup's.
func (n *Network) Announce(ctx context.Context, p netsetup.Plan) error {
	if err := n.script.enter(ctx, "Network.Announce"); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.announced == nil {
		n.announced = map[string]int{}
	}
	n.announced[p.ID]++
	return nil
}

// Free implements netsetup's.
func (n *Network) Free(ctx context.Context, p netsetup.Plan) error {
	return n.make(ctx, "Free", p, "free")
}

// Announced returns how often a VM's guest was announced.
func (n *Network) Announced(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.announced[id]
}

// Leave implements netsetup's.
func (n *Network) Leave(ctx context.Context, p netsetup.Plan) error {
	if err := n.script.enter(ctx, "Network.Leave"); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made[p.ID]["bridge"] { // Undo would have given the guest's addresses to the pod
		n.silent = append(n.silent, p.Netns)
	}
	return nil
}

// Silent returns the network namespaces that guests have left, before Undo.
func (n *Network) Silent() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.silent)
}

// Sweep implements netsetup's.
func (n *Network) Sweep(ctx context.Context, known func(id string) bool) error {
	if err := n.script.enter(ctx, "Network.Sweep"); err != nil {
		return err
	}
	n.mu.Lock()
	stray := slices.Concat(slices.Collect(maps.Keys(n.made)), slices.Collect(maps.Keys(n.servers)))
	n.mu.Unlock()
	for _, id := range stray {
		if !known(id) {
			n.remove(id)
		}
	}
	return nil
}

// Has reports whether a part of a VM's network is made: taps, bridge or connected.
func (n *Network) Has(id, part string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made[id][part]
}

// Left returns what is made.
func (n *Network) Left() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for id := range n.made {
		all = append(all, "network of "+id)
	}
	for id := range n.servers {
		all = append(all, "dnsmasq of "+id)
	}
	return all
}
