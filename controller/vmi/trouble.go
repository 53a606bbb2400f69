package vmi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// trouble is what keeps a guest from running, in the words of its source.
type trouble struct {
	reason, message string
	// unschedulable says that the scheduler would refuse the pod. KubeVirt reports that
	// in place of a pod.
	unschedulable bool
	// poll says that no event reports the end of it.
	poll bool
}

// failedCreate says that there is no pod.
func failedCreate(err error) *trouble { return &trouble{reason: "FailedCreate", message: err.Error()} }

// find returns what keeps the guest from running, in words for users of VMs; nil for nothing.
func (v view) find() *trouble {
	t := v.search()
	if t == nil {
		return nil
	}
	plain := *t
	plain.message = ofVM(t.message)
	return &plain
}

// ofVM returns a node's words about a pod as those about a VM. The annotation of the pod is the spec of the VM, whose author has
// not written the annotation.
func ofVM(message string) string {
	for _, words := range []struct{ pod, vm string }{
		{vmspec.AnnotationVMI + ": spec.", "spec."}, {"annotation " + vmspec.AnnotationVMI, "the VM's spec"}, {vmspec.AnnotationVMI, "the VM's spec"},
	} {
		message = strings.ReplaceAll(message, words.pod, words.vm)
	}
	return message
}

// search returns what keeps the guest from running, in the words of its source; nil for nothing.
func (v view) search() *trouble {
	if v.trouble != nil {
		return v.trouble
	}
	refused := v.refused()
	if refused != nil && refused.reason == condition.ReasonUnfinished {
		return refused // which the kubelet takes for an error
	}
	if t := v.waitingTrouble(); t != nil {
		return t
	}
	if refused != nil {
		return refused
	}
	return v.unfilled
}

// refused returns why the node did not create the container, in the node's words,
// which the kubelet shortens or drops.
func (v view) refused() *trouble {
	if v.pod == nil {
		return nil
	}
	c := conditionOf(v.pod, condition.VMReady)
	if c == nil || c.Status != corev1.ConditionFalse ||
		!slices.Contains([]string{condition.ReasonCreateFailed, condition.ReasonUnfinished, condition.ReasonStartFailed}, c.Reason) {
		return nil
	}
	return &trouble{reason: c.Reason, message: c.Message}
}

// waitingTrouble returns the kubelet's reason for a container that it cannot start: the VM, or
// a hook sidecar, which starts before.
func (v view) waitingTrouble() *trouble {
	var all []*corev1.ContainerState
	if c := v.compute(); c != nil {
		all = append(all, c)
	}
	if v.pod != nil && !v.running() {
		for i := range v.pod.Status.InitContainerStatuses {
			all = append(all, &v.pod.Status.InitContainerStatuses[i].State)
		}
	}
	for _, c := range all {
		if c.Waiting == nil {
			continue
		}
		switch c.Waiting.Reason {
		case "", "ContainerCreating", "PodInitializing":
		default:
			return &trouble{reason: c.Waiting.Reason, message: c.Waiting.Message}
		}
	}
	return nil
}

// troubles are the reasons of events of a pod without a sandbox that say why.
var troubles = map[string]bool{
	"FailedCreatePodSandBox": true,
	"FailedMount":            true,
	"FailedAttachVolume":     true,
	"FailedMapVolume":        true,
}

// maxEvents bounds what is read of a pod's events.
const maxEvents = 100

// LastFailure returns what an event says of the last failure of a pod's sandbox or volumes; "" for
// none.
func LastFailure(ctx context.Context, live client.Reader, p *corev1.Pod) (string, error) {
	t, err := lastFailure(ctx, live, p)
	if t == nil {
		return "", err
	}
	return t.reason + ": " + t.message, nil
}

func lastFailure(ctx context.Context, live client.Reader, p *corev1.Pod) (*trouble, error) {
	list, err := eventsOf(ctx, live, p)
	if err != nil {
		return nil, err
	}
	var last *corev1.Event
	for i := range list {
		e := &list[i]
		if e.Type == corev1.EventTypeWarning && troubles[e.Reason] && (last == nil || when(e).After(when(last))) {
			last = e
		}
	}
	if last == nil {
		return nil, nil
	}
	return &trouble{reason: last.Reason, message: last.Message}, nil
}

// reasonKilling is the kubelet's, of an event about a container that it stops.
const reasonKilling = "Killing"

// livenessFailed reports whether the kubelet stopped a pod's VM since its liveness probe failed. Only an event says so.
func livenessFailed(ctx context.Context, live client.Reader, p *corev1.Pod) (bool, error) {
	list, err := eventsOf(ctx, live, p)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(e corev1.Event) bool {
		return e.Reason == reasonKilling && strings.Contains(e.Message, "failed liveness probe")
	}), nil
}

// eventsOf returns the events of a pod, as far as they are few enough.
func eventsOf(ctx context.Context, live client.Reader, p *corev1.Pod) ([]corev1.Event, error) {
	var list corev1.EventList
	err := live.List(ctx, &list, client.InNamespace(p.Namespace), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(p.UID))})
	if err != nil {
		return nil, fmt.Errorf("list events of pod %s: %w", p.Name, err)
	}
	return list.Items, nil
}

// when returns when an event was last seen. Several fields can have that time.
func when(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
