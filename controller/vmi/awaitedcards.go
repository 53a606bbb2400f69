package vmi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
)

const (
	// pollCard is the time between two looks at the attachment pod of a card: the instance gets no event of that pod.
	pollCard = 5 * time.Second
	// maxWhy bounds what an instance says of the attachment pod of a card, in bytes.
	maxWhy = 1024
)

// awaitedCards returns the names of the network cards that a running VM is about to get.
func awaitedCards(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) []string {
	has := pod.PluggedCards(p)
	return slices.DeleteFunc(pod.CardsToPlug(vmi, p), func(name string) bool {
		return slices.ContainsFunc(has, func(c pod.PluggedCard) bool { return c.Name == name })
	})
}

// cardLooks finds out why running VMs do not get their network cards.
type cardLooks struct {
	client client.Client
	now    func() time.Time
	events interface {
		troubleInEvents(ctx context.Context, p *corev1.Pod) (*trouble, error)
	}
}

// trouble returns why a running VM does not get the first network card that it is about to get; "" for no known reason. It
// also returns when to look again; 0 for never.
func (l *cardLooks) trouble(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (string, time.Duration, error) {
	awaited := awaitedCards(vmi, p)
	if len(awaited) == 0 {
		return "", 0, nil
	}
	attachments, err := hotplug.Attachments(ctx, l.client, p)
	if err != nil {
		return "", 0, err
	}
	for i := range attachments {
		a := &attachments[i]
		if a.DeletionTimestamp != nil || pod.HeldCard(a) != awaited[0] {
			continue
		}
		why, next, err := l.ofPod(ctx, a)
		if why != "" {
			why = strings.ToValidUTF8(fields.Clip(fmt.Sprintf("pod %s: %s", a.Name, why), maxWhy), "?")
		}
		return why, max(next, pollCard), err
	}
	return "", pollCard, nil
}

// ofPod returns what keeps an attachment pod from giving its card to the VM, and when to look at its events again.
func (l *cardLooks) ofPod(ctx context.Context, p *corev1.Pod) (why string, next time.Duration, err error) {
	if c := pod.Unscheduled(p); c != nil {
		return c.Reason + ": " + c.Message, 0, nil
	}
	if w := pod.Waiting(p); w != nil {
		return w.Reason + ": " + w.Message, 0, nil
	}
	if problem := p.Annotations[pod.AnnotationProblem]; problem != "" {
		return problem, 0, nil
	}
	due, next := lookAtEvents(p, l.now())
	if !due {
		return "", next, nil
	}
	t, err := l.events.troubleInEvents(ctx, p)
	if t == nil || err != nil {
		return "", next, err
	}
	return t.reason + ": " + t.message, next, nil
}
