package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Reasons of the events of network cards.
const (
	reasonFailedCard = "FailedAttachInterface"
	reasonCard       = "InterfaceAttached"
	reasonCardGone   = "InterfaceDetached"
)

// maxIPs bounds the addresses of a card that a node reports.
const maxIPs = 16

// hasCards reports whether an instance has a network that its VM may get or lose while it runs.
func hasCards(vmi *kubevirt.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Spec.Networks, vmspec.IsSecondary) ||
		slices.ContainsFunc(vmi.Status.Interfaces, func(i kubevirt.VirtualMachineInstanceNetworkInterface) bool {
			return i.PodInterfaceName == vmspec.PluginInterface(i.Name)
		})
}

// cards are the network cards that an instance's VM gets and loses.
type cards struct{ *work }

// card is one of them, with what there is of it.
type card struct {
	name string
	// has is what the VM's pod notes of the card; nil for one that the node has not confirmed.
	has *pod.PluggedCard
	// start says that the VM has started with the card.
	start bool
	// live is the attachment pod; nil if there is none. Former are those that go.
	live   *corev1.Pod
	former []corev1.Pod
}

// step takes the next step for each card, and returns when to look again; 0 for when an object changes. The
// VM's pod notes what the node has confirmed.
func (w cards) step(ctx context.Context) (time.Duration, error) {
	wanted := pod.CardsToPlug(w.vmi, w.own)
	names := slices.Clone(wanted)
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, c := range pod.PluggedCards(w.own) {
		add(c.Name)
	}
	for i := range w.cards {
		add(pod.HeldCard(&w.cards[i]))
	}
	for _, name := range pod.CardsToLose(w.vmi, w.own) {
		add(name)
	}
	var patience time.Duration // for a former card that is on its way
	return each(names, func(name string) (time.Duration, error) {
		c := w.card(name)
		if !slices.Contains(wanted, name) || w.replaced(c) {
			return w.detach(ctx, c)
		}
		again, err := w.attach(ctx, c, patience)
		patience = max(patience, w.onTheWay(c))
		return again, err
	})
}

// cardOrderTime is how long a card waits for those before it in the spec. The guest names its cards in the order in which they
// come, and their attachment pods may start in any.
const cardOrderTime = 30 * time.Second

// onTheWay returns for how long the cards after one wait for it; 0 if the VM has it, or if its attachment pod does not start.
func (w cards) onTheWay(c *card) time.Duration {
	if c.has != nil || c.live == nil || c.live.Annotations[pod.AnnotationProblem] != "" || pod.Unscheduled(c.live) != nil || pod.Waiting(c.live) != nil {
		return 0
	}
	return cardOrderTime - w.Now().Sub(c.live.CreationTimestamp.Time).Abs() // the clock may have been set back since
}

func (w cards) card(name string) *card {
	c := &card{name: name, start: slices.Contains(pod.CardsToLose(w.vmi, w.own), name)}
	for _, has := range pod.PluggedCards(w.own) {
		if has.Name == name {
			c.has = &has
		}
	}
	for i := range w.cards {
		p := &w.cards[i]
		switch {
		case pod.HeldCard(p) != name:
		case p.DeletionTimestamp != nil || ended(p):
			c.former = append(c.former, *p)
		default:
			c.live = p
		}
	}
	return c
}

// replaced reports whether the network of a card that the VM has is gone, or was made again: its attachment pod
// has ended, or has another container.
func (w cards) replaced(c *card) bool {
	if c.has == nil {
		return false
	}
	if c.live == nil {
		return true
	}
	container := pod.HolderOf(c.live)
	return container != "" && container != c.has.Container
}

// attach takes the next step for a card that the VM should have. The VM gets it after a time of patience at the latest.
func (w cards) attach(ctx context.Context, c *card, patience time.Duration) (time.Duration, error) {
	if c.live == nil {
		return w.create(ctx, c)
	}
	if err := w.deletePods(ctx, c.former); err != nil {
		return 0, err
	}
	container := pod.HolderOf(c.live)
	if c.has != nil || container == "" {
		return 0, nil // the attachment pod's events trigger the next step
	}
	if patience > 0 {
		return patience, nil
	}
	text, err := json.Marshal(pod.CardOf(&w.vmi.Spec, c.name))
	if err != nil {
		return 0, fmt.Errorf("encode interface %s: %w", c.name, err)
	}
	multi := w.vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue
	now, err := w.about(ctx, c, order.CardAttach, order.CardAttachment{Interface: text, Container: container, Multiqueue: multi != nil && *multi})
	if err == nil && now.State != order.Attached {
		err = fmt.Errorf("%s: the card is %s", order.CardAttach, now.State)
	}
	if err != nil {
		// The VM has the card if an answer was lost, and the attachment pod has another container since.
		if now, e := w.about(ctx, c, order.CardStatus, order.Name{Name: c.name}); e == nil && now.State == order.Attached && now.Container != container {
			_, _ = w.about(ctx, c, order.CardDetach, order.Name{Name: c.name})
		}
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedCard, "Hotplug", "Interface %s: %.900s", c.name, err.Error())
		return retry, w.noteProblem(ctx, c, clip(err.Error()))
	}
	c.has = &pod.PluggedCard{Name: c.name, Container: container, MAC: now.MAC, IPs: now.IPs}
	if err := w.note(ctx, c); err != nil {
		return 0, err
	}
	w.Events.Eventf(w.vmi, nil, corev1.EventTypeNormal, reasonCard, "Hotplug", "Attached interface %s to the VM", c.name)
	return 0, nil
}

// create creates the attachment pod of a card.
func (w cards) create(ctx context.Context, c *card) (time.Duration, error) {
	var former []types.UID
	for _, p := range c.former {
		former = append(former, p.UID)
	}
	p, err := pod.CardAttachment(w.vmi, w.own, c.name, w.Holder, former...)
	if err != nil { // a retry would fail in the same way
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedCard, "Hotplug", "Interface %s: %.900s", c.name, err.Error())
		return 0, nil
	}
	err = w.replacePods(ctx, c.former, p) // the pod's event triggers the next step
	if isRefused(err) {
		return refusedRetry, nil
	}
	return 0, err
}

// detach takes the next step for a card that the VM should not have. The attachment pod stays until the guest has
// released the card.
func (w cards) detach(ctx context.Context, c *card) (time.Duration, error) {
	now, err := w.about(ctx, c, order.CardStatus, order.Name{Name: c.name})
	if err == nil && now.State != order.None {
		now, err = w.about(ctx, c, order.CardDetach, order.Name{Name: c.name})
	}
	if err != nil {
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedCard, "Hotplug", "Interface %s: %.900s", c.name, err.Error())
		return retry, nil
	}
	if now.State != order.None {
		return retry, nil // the node goes on to ask the guest
	}
	if c.has != nil || c.start {
		c.has = nil
		if err := w.note(ctx, c); err != nil {
			return 0, err
		}
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeNormal, reasonCardGone, "Hotplug", "Detached interface %s from the VM", c.name)
	}
	pods := slices.Clone(c.former)
	if c.live != nil {
		pods = append(pods, *c.live)
	}
	return 0, w.deletePods(ctx, pods)
}

// note notes on the VM's pod whether the VM has a card.
func (w cards) note(ctx context.Context, c *card) error {
	before := w.own.DeepCopy()
	if c.start {
		pod.SetLost(w.own, c.name)
	}
	all := slices.DeleteFunc(pod.PluggedCards(w.own), func(has pod.PluggedCard) bool { return has.Name == c.name })
	if c.has != nil {
		all = append(all, *c.has)
	}
	if err := pod.SetPluggedCards(w.own, all); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before.Annotations, w.own.Annotations) {
		return nil
	}
	if err := w.Client.Patch(ctx, w.own, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("annotate pod %s/%s: %w", w.own.Namespace, w.own.Name, err))
	}
	return nil
}

// noteProblem notes on the attachment pod of a card why the VM does not get the card, for the instance's conditions.
func (w cards) noteProblem(ctx context.Context, c *card, why string) error {
	if c.live.Annotations[pod.AnnotationProblem] == why {
		return nil
	}
	before := c.live.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.live.ObjectMeta, pod.AnnotationProblem, why)
	if err := w.Client.Patch(ctx, c.live, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("annotate pod %s/%s: %w", c.live.Namespace, c.live.Name, err))
	}
	return nil
}

// about gives an order about a card to the VM, and returns the node's answer.
func (w cards) about(ctx context.Context, c *card, name string, argument any) (order.Card, error) {
	text, err := w.ask(ctx, name, argument)
	if err != nil {
		return order.Card{}, err
	}
	var now order.Card
	if err := json.Unmarshal(text, &now); err != nil || now.Name != c.name || !sound(now) {
		return order.Card{}, fmt.Errorf("%s in pod %s on node %s: the answer is not about network card %s", name, w.own.Name, w.own.Spec.NodeName, c.name)
	}
	return now, nil
}

// sound reports whether the values of a node's answer are such.
func sound(c order.Card) bool {
	if _, err := net.ParseMAC(c.MAC); c.MAC != "" && err != nil || len(c.IPs) > maxIPs {
		return false
	}
	for _, ip := range c.IPs {
		if _, err := netip.ParseAddr(ip); err != nil {
			return false
		}
	}
	return slices.Contains([]order.State{order.None, order.Attaching, order.Attached, order.Detaching}, c.State)
}
