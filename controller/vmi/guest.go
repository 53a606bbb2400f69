package vmi

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Nodes report guests by conditions of their pods. A node without a credential sets
// no such conditions; its guests run all the same.

// trueCondition returns the pod's condition of a type if it is true; nil otherwise.
func (v view) trueCondition(kind corev1.PodConditionType) *corev1.PodCondition {
	if v.pod == nil || !v.running() {
		return nil
	}
	c := conditionOf(v.pod, kind)
	if c == nil || c.Status != corev1.ConditionTrue {
		return nil
	}
	return c
}

// guest returns what the guest's agent reports; false if it reports nothing.
func (v view) guest() (condition.Guest, bool) {
	c := v.trueCondition(condition.GuestInfo)
	if c == nil {
		return condition.Guest{}, false
	}
	g, err := condition.Parse(c.Message)
	return g, err == nil
}

// osInfo returns the guest's operating system, as its agent names it.
func osInfo(v view) kubevirt.VirtualMachineInstanceGuestOSInfo {
	g, ok := v.guest()
	if !ok || g.OS == nil {
		return kubevirt.VirtualMachineInstanceGuestOSInfo{}
	}
	return kubevirt.VirtualMachineInstanceGuestOSInfo{
		ID: g.OS.ID, Name: g.OS.PrettyName, PrettyName: g.OS.PrettyName, VersionID: g.OS.VersionID,
		Version: g.OS.VersionID, KernelRelease: g.OS.Kernel, Machine: g.OS.Machine,
	}
}

// frozen returns KubeVirt's word for a guest whose file systems are frozen; "" for
// others.
func frozen(v view) string {
	if g, ok := v.guest(); ok && g.Frozen {
		return "frozen"
	}
	return ""
}

// addGuests adds to the cards their names in the guest, and the guest's addresses if
// the pod's network has none. It finds a card by the name that the node gives it, by its MAC or IP address, or as the only
// remaining one. It returns the cards and, once they are all known, the guest's interfaces
// that are none of them, as KubeVirt does.
func addGuests(cards []kubevirt.VirtualMachineInstanceNetworkInterface, v view) []kubevirt.VirtualMachineInstanceNetworkInterface {
	g, ok := v.guest()
	if !ok {
		return cards
	}
	left := slices.Clone(g.Interfaces)
	var unknown []int
	for i := range cards {
		at := slices.IndexFunc(left, func(seen condition.Interface) bool { return seen.Card == cards[i].Name })
		if at < 0 {
			at = slices.IndexFunc(left, func(seen condition.Interface) bool { return seen.Card == "" && sameCard(cards[i], seen) })
		}
		if at < 0 {
			unknown = append(unknown, i)
			continue
		}
		addGuest(&cards[i], left[at])
		left = slices.Delete(left, at, at+1)
	}
	left = slices.DeleteFunc(left, func(seen condition.Interface) bool { return seen.Card != "" }) // of a card that comes or goes
	if len(unknown) == 1 && len(left) == 1 && cards[unknown[0]].MAC == "" {
		addGuest(&cards[unknown[0]], left[0])
		return cards
	}
	if slices.ContainsFunc(unknown, func(i int) bool { return cards[i].MAC == "" }) {
		return cards // any of those that are left may be this card
	}
	own := slices.Clone(cards)
	for _, seen := range left {
		if slices.ContainsFunc(own, func(c kubevirt.VirtualMachineInstanceNetworkInterface) bool { return sameCard(c, seen) }) {
			continue // such as a bridge, with the address of its card
		}
		one := kubevirt.VirtualMachineInstanceNetworkInterface{QueueCount: unknownQueues}
		addGuest(&one, seen)
		one.InfoSource = infoAgent
		cards = append(cards, one)
	}
	return cards
}

// What the status says of an interface that the guest made: KubeVirt's words.
const (
	infoAgent     = "guest-agent"
	unknownQueues = -1
)

func sameCard(card kubevirt.VirtualMachineInstanceNetworkInterface, seen condition.Interface) bool {
	if card.MAC != "" {
		return strings.EqualFold(card.MAC, seen.MAC)
	}
	return slices.ContainsFunc(seen.IPs, func(ip string) bool { return slices.Contains(card.IPs, ip) })
}

// maxDevice is the longest name of an interface in Linux; Windows' are longer.
const maxDevice = 64

func addGuest(card *kubevirt.VirtualMachineInstanceNetworkInterface, seen condition.Interface) {
	card.InterfaceName = seen.Name[:min(len(seen.Name), maxDevice)]
	const multus = ", multus-status" // KubeVirt names it last
	if before, is := strings.CutSuffix(card.InfoSource, multus); is {
		card.InfoSource = before + ", guest-agent" + multus
	} else {
		card.InfoSource += ", guest-agent"
	}
	if mac, err := net.ParseMAC(seen.MAC); err == nil && card.MAC == "" {
		card.MAC = mac.String()
	}
	if len(card.IPs) > 0 {
		return
	}
	for _, ip := range seen.IPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			card.IPs = append(card.IPs, a.String())
		}
	}
	if len(card.IPs) > 0 {
		card.IP = card.IPs[0]
	}
}
