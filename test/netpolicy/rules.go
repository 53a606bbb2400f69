package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// selecting returns the policies that limit a pod in a direction. The API server sets a policy's types.
func (s state) selecting(pod *corev1.Pod, kind networkingv1.PolicyType) []*networkingv1.NetworkPolicy {
	var all []*networkingv1.NetworkPolicy
	for _, p := range s.policies {
		if p.Namespace == pod.Namespace && slices.Contains(p.Spec.PolicyTypes, kind) && matches(&p.Spec.PodSelector, pod.Labels) {
			all = append(all, p)
		}
	}
	return all
}

// matches reports whether a selector selects labels. The API server refuses selectors that are not valid.
func matches(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// rules returns nft's matches of the packets that a policy allows a pod.
func (s state) rules(policy *networkingv1.NetworkPolicy, pod *corev1.Pod, d direction) []string {
	var all []string
	if d.kind == networkingv1.PolicyTypeIngress {
		for _, rule := range policy.Spec.Ingress {
			from := s.peers(policy.Namespace, rule.From)
			all = append(all, combine(from.matches(d.other), portMatches(rule.Ports, []*corev1.Pod{pod}))...)
		}
		return all
	}
	for _, rule := range policy.Spec.Egress {
		to := s.peers(policy.Namespace, rule.To)
		numbers, names := split(rule.Ports)
		if len(numbers) > 0 || len(rule.Ports) == 0 {
			all = append(all, combine(to.matches(d.other), portMatches(numbers, nil))...)
		}
		if len(names) == 0 {
			continue
		}
		// Each peer has its own port of a name.
		for _, pod := range to.pods {
			one := peers{pods: []*corev1.Pod{pod}}
			all = append(all, combine(one.matches(d.other), portMatches(names, one.pods))...)
		}
	}
	return all
}

// peers are who a rule allows.
type peers struct {
	everyone bool // whatever the address
	pods     []*corev1.Pod
	blocks   []networkingv1.IPBlock
}

// peers finds those of a rule of a namespace's policy.
func (s state) peers(namespace string, of []networkingv1.NetworkPolicyPeer) peers {
	p := peers{everyone: len(of) == 0}
	for _, pod := range s.pods {
		if p.everyone || slices.ContainsFunc(of, func(peer networkingv1.NetworkPolicyPeer) bool { return s.isPeer(pod, namespace, peer) }) {
			p.pods = append(p.pods, pod)
		}
	}
	for _, peer := range of {
		if peer.IPBlock != nil {
			p.blocks = append(p.blocks, *peer.IPBlock)
		}
	}
	return p
}

func (s state) isPeer(pod *corev1.Pod, namespace string, peer networkingv1.NetworkPolicyPeer) bool {
	if peer.IPBlock != nil {
		return false
	}
	if peer.NamespaceSelector == nil && pod.Namespace != namespace {
		return false
	}
	if peer.NamespaceSelector != nil && !slices.ContainsFunc(s.namespaces, func(n *corev1.Namespace) bool {
		return n.Name == pod.Namespace && matches(peer.NamespaceSelector, n.Labels)
	}) {
		return false
	}
	return peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)
}

// matches returns nft's matches of the peers' addresses, in a field of the packet.
func (p peers) matches(field string) []string {
	if p.everyone {
		return []string{""}
	}
	by := map[string][]string{}
	for _, pod := range p.pods {
		for _, a := range addresses(pod) {
			name, _ := family(a)
			by[name] = append(by[name], a.String())
		}
	}
	var all []string
	for _, f := range families() {
		if its := by[f.name]; len(its) > 0 {
			all = append(all, fmt.Sprintf("%s %s { %s }", f.name, field, strings.Join(its, ", ")))
		}
	}
	for _, b := range p.blocks {
		network, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			continue // the API server refuses it
		}
		name, _ := family(network.Addr())
		match := []string{name, field, network.Masked().String()}
		for _, except := range b.Except {
			match = append(match, name, field, "!=", except)
		}
		all = append(all, strings.Join(match, " "))
	}
	return all
}

// split divides ports into those by number and those by name.
func split(ports []networkingv1.NetworkPolicyPort) (numbers, names []networkingv1.NetworkPolicyPort) {
	for _, p := range ports {
		if p.Port != nil && p.Port.Type == intstr.String {
			names = append(names, p)
		} else {
			numbers = append(numbers, p)
		}
	}
	return numbers, names
}

// portMatches returns nft's matches of ports. Names are those of the pods' containers.
func portMatches(ports []networkingv1.NetworkPolicyPort, pods []*corev1.Pod) []string {
	if len(ports) == 0 {
		return []string{""}
	}
	var all []string
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		name := strings.ToLower(string(protocol))
		switch {
		case p.Port == nil:
			all = append(all, "meta l4proto "+name)
		case p.Port.Type == intstr.String:
			for _, number := range named(pods, p.Port.StrVal, protocol) {
				all = append(all, fmt.Sprintf("%s dport %d", name, number))
			}
		case p.EndPort != nil:
			all = append(all, fmt.Sprintf("%s dport %d-%d", name, p.Port.IntVal, *p.EndPort))
		default:
			all = append(all, fmt.Sprintf("%s dport %d", name, p.Port.IntVal))
		}
	}
	return all
}

// named returns the ports of a name and protocol that pods have.
func named(pods []*corev1.Pod, name string, protocol corev1.Protocol) []int32 {
	var all []int32
	for _, pod := range pods {
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				if p.Name == name && (p.Protocol == protocol || p.Protocol == "" && protocol == corev1.ProtocolTCP) {
					all = append(all, p.ContainerPort)
				}
			}
		}
	}
	return all
}

// combine returns a match for each peer on each port.
func combine(peers, ports []string) []string {
	var all []string
	for _, peer := range peers {
		for _, port := range ports {
			all = append(all, strings.TrimSpace(peer+" "+port))
		}
	}
	return all
}
