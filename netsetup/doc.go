// Package netsetup turns the network namespace that CNI made for a pod into
// network cards for a QEMU guest. With the binding Bridge the guest takes the pod's MAC and
// IP address, so that everything that speaks to the pod speaks to the guest:
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
//  1. [Setup.Plan] reads the namespace and changes nothing. The caller puts the
//     [Plan] on disk before it goes on.
//  2. [Setup.Apply] makes bridge, filter and tap, and takes the addresses off eth0.
//     The tap stands in the caller's own network namespace, where libvirtd is.
//  3. [Setup.Serve] starts dnsmasq in the pod's namespace.
//  4. [Setup.Connect], after QEMU opened the tap and before the guest runs, moves the
//     tap into the pod's namespace.
//
// [Setup.Undo] takes back whatever of that stands, from the Plan alone.
//
// The bridge's MAC address is the Plan's own and marks whose the bridge is: it is set as
// the bridge is created, before anything else in the pod is touched, and the
// bridge is the last thing that Undo removes. A Plan whose bridge is absent has nothing
// to undo on eth0, and an old Plan never disturbs a later machine in the same pod.
//
// The pod's other containers keep loopback and, on nvbr0, the link-local address
// 169.254.75.10, with a route to the guest; nothing outside of the pod reaches it.
//
// With the binding Masquerade eth0 and its addresses stay as they are. The bridge has the
// tap alone as a port, and the gateway's address of a private network, 10.0.2.1; NAT
// passes ports of the pod on to the guest, and the guest's own traffic out.
//
// A guest can send as itself alone: see rules_bridge.go. What it may ask of the pod, and
// whom the pod passes its packets on to, stands in rules_inet.go.
//
// A guest has IPv6 where its pod has. A bridged one gets the pod's address by DHCPv6, and has
// the pod as its router: see route6.go. Of the interface's neighbours and multipath routes
// nothing is kept.
//
// [Dial] reaches a guest's ports from its pod's namespace, those of other containers too.
//
// Addresses belong to CNI, through containerd; the guest's card, and the cgroup that
// dnsmasq runs in, belong to the caller.
package netsetup
