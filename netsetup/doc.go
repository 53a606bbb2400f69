// Package netsetup connects the network cards of a QEMU guest to the network namespace that CNI
// made for the guest's pod. It owns the bridge, the tap, the filter and the DHCP server in that
// namespace. It leaves the pod's addresses to CNI, through containerd, and the guest's card and the
// cgroup that dnsmasq runs in to its caller.
//
// With the binding Bridge the guest takes the pod's MAC and IP address. Peers that connect to the
// pod connect to the guest:
//
//	      node │ pod's network namespace
//	           │
//	   CNI ────┼── eth0 ──┬── nvbr0 ──┬── nv0123456789a ════ QEMU, guest's card
//	(veth, …)  │  new MAC │ 169.254.  │   tap                 pod's MAC, and by
//	           │          │  75.10    │                       DHCP the pod's IP
//	           │       filter      dnsmasq
//
// A start has four calls, in this order:
//
//  1. [Setup.Plan] reads the namespace and changes nothing. The caller writes the
//     [Plan] to disk before it goes on. Setup keeps a copy while there is something to undo.
//  2. [Setup.Apply] creates bridge, filter and tap, and removes the addresses from eth0.
//     The tap is in the caller's own network namespace, where libvirtd is.
//  3. [Setup.Serve] starts dnsmasq in the pod's namespace.
//  4. [Setup.Connect], after QEMU opened the tap and before the guest runs, moves the
//     tap into the pod's namespace.
//
// [Setup.Undo] undoes as much of that as was done. It needs the Plan alone. [Setup.Sweep] does so
// for VMs whose Plan the caller has lost.
//
// The bridge's alias, the VM's id, marks the Plan that owns the bridge. Until it is set, the MAC
// address with which the bridge is created does. Both come before any other change in the pod,
// and Undo removes the bridge last. A Plan whose bridge is absent has nothing to undo on eth0,
// and an old Plan never disturbs a later VM in the same pod.
//
// The bridge's MAC address then becomes that of the guest's router, which is the same in each pod
// that the guest moves to. So are the router's link-local address and its advertisements.
//
// The pod's other containers keep loopback and, on nvbr0, the link-local address
// 169.254.75.10, with a route to the guest. Nothing outside the pod reaches that address.
//
// With the binding Masquerade eth0 and its addresses stay as they are. The bridge has the
// tap as its only port, and the gateway's address of a private network, 10.0.2.1. NAT
// forwards ports of the pod to the guest, and the guest's own traffic to the network.
//
// A guest can only send with its own addresses: see rules_bridge.go. The filter in rules_inet.go
// says which services of the pod a guest may use, and where the pod forwards its packets.
//
// A guest has IPv6 if its pod has. A bridged guest gets the pod's address by DHCPv6, and the pod
// is its router: see routes6.go. Neighbours and multipath routes of the interface are not kept.
//
// [Dial] connects to ports of the guest, and of the pod's other containers, from inside the pod's
// namespace.
package netsetup
