package vmi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Reasons why an instance waits for nodes' answers.
const (
	ReasonGuestWithoutPod = "GuestWithoutPod"
	ReasonNodeNotAsked    = "NodeNotAsked"
)

const (
	// fresh is how long a node's answer counts: a guest without a pod does not come by a start.
	fresh = time.Minute
	// askTime bounds one question, askers the questions at once.
	askTime = 5 * time.Second
	askers  = 16
	// patient is how long an instance waits for a node that is Ready and does not answer.
	patient = 2 * time.Minute
)

// nodeGuests asks the nodes which guests they have, before an instance gets a disk that more than one node can open. The API
// server does not know each guest: after a restore of etcd, one may run whose pod it does not have.
type nodeGuests struct {
	client client.Client
	live   client.Reader
	nodes  Nodes
	now    func() time.Time

	mu      sync.Mutex
	answers map[string]answer // by the nodes' names
}

// answer is what a node said last.
type answer struct {
	guests []condition.NodeGuest
	at     time.Time
	// failing is since when questions fail, and why; zero after an answer.
	failing time.Time
	err     error
}

// user returns why an instance can't start yet: a node has a guest of the instance's name, or one on its shared disks, whose
// pod the API server does not have, or has not said whether it has one on those disks; nil if it can start.
func (n *nodeGuests) user(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, objects pod.PVCObjects) (*trouble, error) {
	shared := shareable(vmi, objects)
	var nodes corev1.NodeList
	if err := n.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	n.forget(nodes.Items)
	var ready []*corev1.Node
	for i := range nodes.Items {
		// Without a shared disk, no node is asked that has not reported the instance's guest.
		if one := &nodes.Items[i]; reports(one) && (len(shared) > 0 || reported(vmi, nil, one) != nil) {
			ready = append(ready, one)
		}
	}
	found := make([]*trouble, len(ready))
	var group errgroup.Group
	group.SetLimit(askers)
	for i, node := range ready {
		group.Go(func() (err error) {
			found[i], err = n.onNode(ctx, vmi, shared, node)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, t := range found {
		if t != nil {
			return t, nil
		}
	}
	return nil, nil
}

// shareable returns the names of an instance's PVCs that more than one node can open, and that the instance writes.
func shareable(vmi *kubevirt.VirtualMachineInstance, objects pod.PVCObjects) []string {
	var all []string
	for _, use := range pod.PVCs(&vmi.Spec) {
		if pvc := objects[use.Name]; pvc != nil && !use.ReadOnly && slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) {
			all = append(all, use.Name)
		}
	}
	return all
}

// reports reports whether a node is Ready and has run VMs.
func reports(n *corev1.Node) bool {
	_, labelled := n.Labels[kubevirt.NodeSchedulable]
	ready, known := false, labelled
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		known = known || c.Type == condition.GuestsWithoutPods
	}
	return ready && known
}

// onNode returns why one node keeps an instance from its shared disks; nil if it does not.
func (n *nodeGuests) onNode(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, shared []string, node *corev1.Node) (*trouble, error) {
	by, err := n.door(ctx, node.Name)
	if err != nil {
		return nil, err
	}
	if by == nil { // no VM of the API server's: what the node has written must do
		return reported(vmi, shared, node), nil
	}
	a := n.ask(ctx, by)
	if a.err != nil && len(shared) == 0 {
		return reported(vmi, nil, node), nil
	}
	if a.err != nil && n.now().Sub(a.failing) < patient {
		return &trouble{reason: ReasonNodeNotAsked, poll: true, message: fmt.Sprintf(
			"Node %s is Ready, and has not said whether one of its guests uses PVC %s: %v. The instance starts when the node answers or is not Ready, or in %s.",
			node.Name, strings.Join(shared, ", "), a.err, patient)}, nil
	}
	for _, g := range a.guests {
		if !uses(g, vmi, shared) {
			continue
		}
		known, err := n.exists(ctx, g)
		if err != nil {
			return nil, err
		}
		if !known {
			return without(node.Name, g.Pod, shared), nil
		}
	}
	return nil, nil
}

// forget drops the answers of nodes that have gone.
func (n *nodeGuests) forget(nodes []corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.answers, func(name string, _ answer) bool {
		return !slices.ContainsFunc(nodes, func(node corev1.Node) bool { return node.Name == name })
	})
}

// without is the trouble with a guest whose pod the API server does not have.
func without(node, name string, shared []string) *trouble {
	what := "is this VM's"
	if len(shared) > 0 {
		what = "may use PVC " + strings.Join(shared, ", ")
	}
	return &trouble{reason: ReasonGuestWithoutPod, poll: true, message: fmt.Sprintf(
		"A guest of pod %.253s, which the API server does not have, runs on node %s and %s. Was etcd restored from a backup? "+
			"The instance starts when that guest has ended: see \"Restore etcd\" in the documentation.", name, node, what)}
}

// uses reports whether a guest may use a shared disk of an instance. Disks that were plugged are known by the VM's name alone.
func uses(g condition.NodeGuest, vmi *kubevirt.VirtualMachineInstance, shared []string) bool {
	return g.Namespace == vmi.Namespace && (g.VMI == vmi.Name ||
		slices.ContainsFunc(g.PVCs, func(name string) bool { return slices.Contains(shared, name) }))
}

// reported returns the trouble with a guest that a Node's annotation names; nil for none.
func reported(vmi *kubevirt.VirtualMachineInstance, shared []string, node *corev1.Node) *trouble {
	unknown := func(c corev1.NodeCondition) bool {
		return c.Type == condition.GuestsWithoutPods && c.Status == corev1.ConditionTrue && c.Reason == condition.ReasonPodsUnknown
	}
	if !slices.ContainsFunc(node.Status.Conditions, unknown) {
		return nil
	}
	var said condition.NodeGuests
	err := json.Unmarshal([]byte(node.Annotations[condition.AnnotationGuests]), &said)
	if err != nil && len(shared) > 0 {
		return &trouble{reason: ReasonGuestWithoutPod, poll: true, message: fmt.Sprintf(
			"Guests whose pods the API server does not have run on node %s, and may use PVC %s: annotation %s of the Node cannot be read: %v. "+
				"The instance starts when they have ended: see \"Restore etcd\" in the documentation.",
			node.Name, strings.Join(shared, ", "), condition.AnnotationGuests, err)}
	}
	for _, g := range said.Guests {
		if uses(g, vmi, shared) {
			return without(node.Name, g.Pod, shared)
		}
	}
	if said.More > 0 && len(shared) > 0 {
		return without(node.Name, fmt.Sprintf("(one of %d that the Node does not name)", said.More), shared)
	}
	return nil
}

// door returns a pod of a VM that runs on a node, by which the node is reached; nil for none.
func (n *nodeGuests) door(ctx context.Context, node string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := n.client.List(ctx, &pods, client.MatchingFields{indexNode: node}, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		// The finalizer is the controller's alone: another pod can have all else, and would answer for the node.
		if _, ours := originOf(p); ours && slices.Contains(p.Finalizers, pod.Finalizer) && (view{pod: p}).running() {
			return p, nil
		}
	}
	return nil, nil
}

// ask returns a node's answer, which may be a little old.
func (n *nodeGuests) ask(ctx context.Context, by *corev1.Pod) answer {
	node, now := by.Spec.NodeName, n.now()
	n.mu.Lock()
	last := n.answers[node]
	n.mu.Unlock()
	if last.err == nil && !last.at.IsZero() && now.Sub(last.at).Abs() < fresh {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := n.nodes.Control(ctx, by, condition.MaxNodeGuests, condition.OrderGuests, "{}")
	var said condition.NodeGuests
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	a := answer{guests: said.Guests, at: now}
	if err != nil {
		a = answer{guests: last.guests, at: last.at, failing: last.failing, err: err}
		if a.failing.IsZero() {
			a.failing = now
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answers == nil {
		n.answers = map[string]answer{}
	}
	n.answers[node] = a
	return a
}

// exists reports whether the API server has a guest's pod.
func (n *nodeGuests) exists(ctx context.Context, g condition.NodeGuest) (bool, error) {
	p := new(corev1.Pod)
	err := n.live.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: g.Pod}, p)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read pod %s/%s: %w", g.Namespace, g.Pod, err)
	}
	return string(p.UID) == g.UID, nil
}
