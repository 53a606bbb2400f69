package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

const (
	// orderTime bounds one order to a node.
	orderTime = 15 * time.Second
	// maxReport bounds a node's answer, in bytes.
	maxReport = 256 << 10
	// maxReason bounds a node's text in a status, in bytes.
	maxReason = 1024
)

// States of package handover, which the cluster's half does not import.
const (
	stateSending    = "sending"
	stateHandedOver = "handed-over"
	stateLeft       = "left"
	stateKept       = "kept"
	stateIncoming   = "incoming"
	stateTaken      = "taken"
	stateRefused    = "refused"
	// stateUnknown is that of a migration of which the node has no record.
	stateUnknown = ""
)

// orders gives nodes the orders of a migration.
type orders struct{ nodes nodes }

// give gives an order to the VM in a pod and decodes the answer.
func (o *orders) give(ctx context.Context, p *corev1.Pod, name string, argument, answer any) error {
	if p == nil {
		return errors.New("the pod is gone")
	}
	text, err := json.Marshal(argument)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	text, err = o.nodes.Control(ctx, p, maxReport, name, string(text))
	if err != nil {
		return fmt.Errorf("%s in pod %s on node %s: %s", name, p.Name, p.Spec.NodeName, clip(err.Error()))
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s in pod %s on node %s: the answer is no JSON of its type", name, p.Name, p.Spec.NodeName)
	}
	return nil
}

// ask gives an order that has a report as its answer.
func (o *orders) ask(ctx context.Context, m *migration, p *corev1.Pod, name string, argument any) (*order.Report, error) {
	report := new(order.Report)
	if err := o.give(ctx, p, name, argument, report); err != nil {
		return nil, err
	}
	switch {
	case report.State != stateUnknown && report.Migration.Migration != string(m.UID):
		return nil, fmt.Errorf("%s in pod %s on node %s: the answer is about another migration", name, p.Name, p.Spec.NodeName)
	case !slices.Contains([]string{
		stateUnknown, stateSending, stateHandedOver, stateLeft, stateKept, stateIncoming, stateTaken, stateRefused,
	}, report.State):
		return nil, fmt.Errorf("%s in pod %s on node %s: the answer has an unknown state", name, p.Name, p.Spec.NodeName)
	}
	report.Reason = clip(report.Reason)
	return report, nil
}

func named(m *migration) order.Migration { return order.Migration{Migration: string(m.UID)} }

// fingerprint is a SHA-256 in hexadecimal.
var fingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`)

// identify asks the source for its fingerprint.
func (o *orders) identify(ctx context.Context, w work) (order.Identity, error) {
	var i order.Identity
	if err := o.give(ctx, w.source, order.Identify, order.Departure{Migration: named(w.m), Copied: slices.Sorted(maps.Keys(pod.Copied(w.target)))}, &i); err != nil {
		return i, err
	}
	if i.Guest == nil {
		return i, fmt.Errorf("pod %s on node %s: the answer does not name the guest", w.source.Name, w.source.Spec.NodeName)
	}
	if len(i.Guest.Plugged) > order.MaxPlugged {
		return i, fmt.Errorf("pod %s on node %s: the answer names %d disks that the guest has got, the limit is %d",
			w.source.Name, w.source.Spec.NodeName, len(i.Guest.Plugged), order.MaxPlugged)
	}
	return i, checkFingerprint(i, w.source)
}

// receive has the target listen for the source. Containers hold the volumes that the guest has got.
func (o *orders) receive(ctx context.Context, w work, source order.Identity, containers map[string]string) (order.Identity, error) {
	var i order.Identity
	node, _ := netip.ParseAddr(w.target.Status.HostIP)
	if err := o.give(ctx, w.target, order.Receive, order.Reception{
		Migration: named(w.m), Source: source.Fingerprint, Guest: source.Guest, Volumes: containers,
		Copied: pluggedCopies(w.target), Node: node,
	}, &i); err != nil {
		return i, err
	}
	if err := checkFingerprint(i, w.target); err != nil {
		return i, err
	}
	// A target must not direct the source's node to another place of the network.
	at, err := netip.ParseAddrPort(i.Address)
	own := at.Addr() == node || slices.ContainsFunc(w.target.Status.PodIPs, func(ip corev1.PodIP) bool {
		a, err := netip.ParseAddr(ip.IP)
		return err == nil && a == at.Addr()
	})
	if err != nil || !own {
		return i, fmt.Errorf("%s in pod %s on node %s: the answer's address is neither the pod's nor its node's", order.Receive, w.target.Name, w.target.Spec.NodeName)
	}
	return i, nil
}

// pluggedCopies returns the names of the disks that a guest has got since it runs and that become copies.
func pluggedCopies(target *corev1.Pod) []string {
	all := pod.Copied(target)
	maps.DeleteFunc(all, func(_, claim string) bool { return claim == "" })
	return slices.Sorted(maps.Keys(all))
}

func checkFingerprint(i order.Identity, p *corev1.Pod) error {
	if !fingerprint.MatchString(i.Fingerprint) {
		return fmt.Errorf("pod %s on node %s: the answer has no fingerprint", p.Name, p.Spec.NodeName)
	}
	return nil
}

// clip bounds a stranger's text and makes it valid UTF-8.
func clip(text string) string { return strings.ToValidUTF8(fields.Clip(text, maxReason), "?") }
