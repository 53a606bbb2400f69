package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Pods asks the API server about pods; [podstatus.Lookup].
type Pods interface {
	// Gone reports whether the API server has no such pod, or has released it. An error proves nothing.
	Gone(ctx context.Context, pod podstatus.Pod) (bool, error)
}

// ownership finds out whether a guest may have been replaced by one on another node.
type ownership struct {
	pods     Pods
	observer Observer
	domains  power
	log      *slog.Logger
}

// power stops a guest's CPUs, and lets them run; [domain.Client].
type power interface {
	Pause(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error
}

const (
	// askTime bounds a question to the API server: the kubelet, which stops the pod, has just heard from it.
	askTime = 3 * time.Second
	// askAgain is the time between the two answers that end a guest.
	askAgain = time.Second
)

// replaceable returns the pod of a VM whose guest may run elsewhere, once the API server no longer has the pod: one that
// the controller made. The controller replaces no others, such as those of crictl and static pods.
func replaceable(r record.Container) (_ podstatus.Pod, ok bool) {
	pod, ok := podstatus.PodOf(r.Sandbox.Value)
	return pod, ok && r.Sandbox.Value.GetAnnotations()[vmspec.AnnotationVMI] != ""
}

// lost reports whether a VM's guest may have been replaced by one on another node, which has its disks now: the API
// server no longer has its pod, and says so twice. The guest is paused as of the first answer. Such a guest must write
// nothing any more, also not what it would write to shut down.
func (o ownership) lost(ctx context.Context, v *table.VM) bool {
	r := v.Record()
	pod, ok := replaceable(r)
	if !ok || !o.gone(ctx, r, pod) {
		return false
	}
	log := table.Logger(o.log, r)
	state, err := stateOf(ctx, o.observer, r)
	runs := err == nil && state.Status == domain.StatusRunning
	if runs {
		if err := o.power(ctx, r, o.domains.Pause); err != nil {
			log.Warn("pausing a guest whose pod is gone failed", "error", err)
		}
	}
	select {
	case <-time.After(askAgain):
	case <-v.Exited():
	case <-ctx.Done():
	}
	if o.gone(ctx, r, pod) {
		log.Warn("powering the guest off at once: the API server no longer has its pod, and its disks may be in use on another node")
		return true
	}
	if runs {
		if err := o.power(ctx, r, o.domains.Resume); err != nil {
			log.Warn("resuming a guest whose pod exists failed", "error", err)
		}
	}
	return false
}

func (o ownership) gone(ctx context.Context, r record.Container, pod podstatus.Pod) bool {
	ctx, cancel := background.AtMost(ctx, askTime)
	defer cancel()
	gone, err := o.pods.Gone(ctx, pod)
	if err != nil {
		table.Logger(o.log, r).Debug("asking the API server for a VM's pod failed", "error", err)
	}
	return err == nil && gone
}

func (o ownership) power(ctx context.Context, r record.Container, change func(context.Context, string) error) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	return change(ctx, r.Domain.UUID)
}
