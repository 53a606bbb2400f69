package netpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/knftables"
)

// state is all that the table depends on.
type state struct {
	node       string
	pods       []*corev1.Pod
	namespaces []*corev1.Namespace
	policies   []*networkingv1.NetworkPolicy
}

// direction is that of a policy's rules.
type direction struct {
	kind       networkingv1.PolicyType
	name       string // of maps and chains
	own, other string // which address of a packet is the pod's, and which the peer's
}

// A packet between two pods of the node passes the first one's rules of egress, then the other's of ingress.
func directions() []direction {
	return []direction{
		{kind: networkingv1.PolicyTypeEgress, name: "egress", own: "saddr", other: "daddr"},
		{kind: networkingv1.PolicyTypeIngress, name: "ingress", own: "daddr", other: "saddr"},
	}
}

// families are nft's names of address families, and of the types of their addresses.
func families() []struct{ name, version, kind string } {
	return []struct{ name, version, kind string }{{"ip", "4", "ipv4_addr"}, {"ip6", "6", "ipv6_addr"}}
}

// family returns nft's name of an address' family, and the family's version.
func family(a netip.Addr) (name, version string) {
	f := families()[0]
	if !a.Is4() {
		f = families()[1]
	}
	return f.name, f.version
}

// table adds the table to tx, in place of one that exists. Maps send the packets of isolated pods to the
// chains of these, which return what is allowed and drop the rest.
func (s state) table(tx *knftables.Transaction) {
	byName := func(a, b metaObject) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	}
	slices.SortFunc(s.pods, func(a, b *corev1.Pod) int { return byName(a, b) })
	slices.SortFunc(s.policies, func(a, b *networkingv1.NetworkPolicy) int { return byName(a, b) })

	tx.Add(&knftables.Table{}) // older versions of nft have no "destroy"
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Chain{
		Name: "forward", Type: new(knftables.FilterType), Hook: new(knftables.ForwardHook), Priority: new(knftables.FilterPriority),
	})
	forward := func(rule ...any) { tx.Add(&knftables.Rule{Chain: "forward", Rule: knftables.Concat(rule...)}) }
	forward("ct state established,related accept")
	// Without it no IPv6 address is found; the bridge passes these to the table, too.
	forward("icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept")
	for _, d := range directions() {
		for _, f := range families() {
			tx.Add(&knftables.Map{Name: d.name + f.version, Type: f.kind + " : verdict"})
			forward(f.name, d.own, "vmap", "@"+d.name+f.version)
		}
	}
	for _, d := range directions() {
		for i, pod := range s.local() {
			if its := s.selecting(pod, d.kind); len(its) > 0 {
				s.isolate(tx, pod, d, fmt.Sprintf("%s-%d", d.name, i), its)
			}
		}
	}
}

// metaObject is what objects are sorted by.
type metaObject interface {
	GetNamespace() string
	GetName() string
}

// isolate adds a pod's chain of a direction, with the rules of policies.
func (s state) isolate(tx *knftables.Transaction, pod *corev1.Pod, d direction, chain string, policies []*networkingv1.NetworkPolicy) {
	tx.Add(&knftables.Chain{Name: chain, Comment: new(pod.Namespace + "/" + pod.Name)})
	add := func(rule ...any) { tx.Add(&knftables.Rule{Chain: chain, Rule: knftables.Concat(rule...)}) }
	for _, a := range addresses(pod) {
		name, version := family(a)
		tx.Add(&knftables.Element{Map: d.name + version, Key: []string{a.String()}, Value: []string{"jump " + chain}})
		add(name, d.other, a, "return") // what it sends to itself, through a Service
	}
	for _, policy := range policies {
		for _, rule := range s.rules(policy, pod, d) {
			add(rule, "return")
		}
	}
	add("drop")
}

// local returns the node's pods that policies can limit.
func (s state) local() []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range s.pods {
		if pod.Spec.NodeName == s.node && len(addresses(pod)) > 0 {
			all = append(all, pod)
		}
	}
	return all
}

// addresses returns a pod's own; none for a pod in its node's network, or one that has ended: another pod may
// have its addresses then.
func addresses(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var all []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a)
		}
	}
	return all
}
