package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// reasonFailedLink is the reason of the event of network cards whose links a node could not set.
const reasonFailedLink = "FailedLinkState"

// setsLinks reports whether an instance's cards have links other than the default, or are about to get it.
func setsLinks(vmi *kubevirt.VirtualMachineInstance) bool {
	if _, set := pod.DownCards(&vmi.Spec); set {
		return true
	}
	return slices.ContainsFunc(vmi.Status.Interfaces, func(i kubevirt.VirtualMachineInstanceNetworkInterface) bool {
		return i.LinkState == string(kubevirt.InterfaceStateLinkDown)
	})
}

// links are the links of an instance's network cards.
type links struct{ *work }

// step has the node set the links of the VM's cards as the spec says, and notes on the VM's pod what the node
// has confirmed. So each pod gets the order again: a guest that migrated may have left before it.
func (w links) step(ctx context.Context) (time.Duration, error) {
	down := w.down()
	if noted, known := pod.Links(w.own); known && slices.Equal(noted, down) || !setsLinks(w.vmi) {
		return 0, nil
	}
	if err := w.set(ctx, down); err != nil {
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, reasonFailedLink, "Hotplug", "Links of network cards: %.900s", err.Error())
		return retry, nil
	}
	before := w.own.DeepCopy()
	metav1.SetMetaDataAnnotation(&w.own.ObjectMeta, pod.AnnotationLinks, strings.Join(down, ","))
	if err := w.Client.Patch(ctx, w.own, client.MergeFrom(before)); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("annotate pod %s/%s: %w", w.own.Namespace, w.own.Name, err))
	}
	return 0, nil
}

// down returns the names of the cards that the VM has, and that have no link by the spec. A card that the VM gets
// comes with its state.
func (w links) down() []string {
	down, _ := pod.DownCards(&w.vmi.Spec)
	has := pod.PluggedCards(w.own)
	wanted := pod.CardsToPlug(w.vmi, w.own)
	return slices.DeleteFunc(down, func(name string) bool {
		return slices.Contains(wanted, name) && !slices.ContainsFunc(has, func(c pod.PluggedCard) bool { return c.Name == name })
	})
}

// set gives the order. The node answers with the cards that have no link then.
func (w links) set(ctx context.Context, down []string) error {
	text, err := w.ask(ctx, order.Link, order.Links{Down: append([]string{}, down...)})
	if err != nil {
		return err
	}
	var has order.Links
	err = json.Unmarshal(text, &has)
	slices.Sort(has.Down)
	if err != nil || !slices.Equal(has.Down, down) {
		return fmt.Errorf("%s in pod %s on node %s: the answer is not about these cards", order.Link, w.own.Name, w.own.Spec.NodeName)
	}
	return nil
}
