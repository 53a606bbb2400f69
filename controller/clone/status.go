package clone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/clone/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// KubeVirt's reasons of conditions, and of an event that its users look for.
const (
	reasonProcessing = "Still processing"
	reasonPending    = "Pending"
	reasonFailed     = "Failed"
	reasonReady      = "Ready"
	reasonNoSource   = "SourceDoesNotExist"
)

// maxReason bounds foreign text in a status, in bytes.
const maxReason = 1024

// verdict is what a halt means for the clone.
type verdict int

const (
	// goesOn: an object that the clone watches is not ready.
	goesOn verdict = iota
	// waits: the user must act first.
	waits
	// fails is final.
	fails
)

// halt is why a clone takes no further step now.
type halt struct {
	as            verdict
	event, reason string
}

func (h *halt) Error() string { return h.reason }

func wait(format string, args ...any) error {
	return &halt{as: goesOn, reason: fmt.Sprintf(format, args...)}
}

func failure(event, format string, args ...any) error {
	return &halt{as: fails, event: event, reason: fmt.Sprintf(format, args...)}
}

// after returns text that follows other text; "" if it is empty.
func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// report writes the clone's status: why it halts; nil if it has succeeded.
func (r *Reconciler) report(ctx context.Context, w *work, h *halt) error {
	progressing, ready := corev1.ConditionFalse, corev1.ConditionFalse
	var reason, why, message string
	switch {
	case h == nil:
		ready, reason, why = corev1.ConditionTrue, reasonReady, reasonReady
	case h.as == waits:
		reason, why = reasonPending, h.reason
	case h.as == fails:
		reason, why = reasonFailed, h.reason
		w.c.Status.Phase = api.Failed
	default:
		progressing, reason, why, message = corev1.ConditionTrue, reasonProcessing, reasonProcessing, fields.Clip(h.reason, maxReason)
	}
	r.condition(w.c, api.ConditionProgressing, progressing, reason, message)
	changed := r.condition(w.c, api.ConditionReady, ready, fields.Clip(why, maxReason), message)
	if err := r.write(ctx, w); err != nil {
		return err
	}
	if h != nil && h.event != "" && changed {
		kind := corev1.EventTypeWarning
		if h.event == reasonNoSource {
			kind = corev1.EventTypeNormal // as KubeVirt's
		}
		r.event(w, kind, h.event, "%s", h.reason)
	}
	return nil
}

func (r *Reconciler) event(w *work, kind, reason, format string, args ...any) {
	r.Events.Eventf(w.c, nil, kind, reason, "Clone", "%s", fields.Clip(fmt.Sprintf(format, args...), maxReason))
}

// write writes the clone's status, if it has changed.
func (r *Reconciler) write(ctx context.Context, w *work) error {
	if equality.Semantic.DeepEqual(w.was.Status, w.c.Status) {
		return nil
	}
	p := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, w.c, p); err != nil {
		return fmt.Errorf("write status of clone %s/%s: %w", w.c.Namespace, w.c.Name, err)
	}
	w.was = w.c.DeepCopy()
	return nil
}

// condition sets a condition, and reports whether its reason is another than before; KubeVirt has
// its sentence as the reason.
func (r *Reconciler) condition(c *vmClone, kind api.ConditionType, status corev1.ConditionStatus, reason, message string) bool {
	for i := range c.Status.Conditions {
		have := &c.Status.Conditions[i]
		if have.Type != kind {
			continue
		}
		changed := have.Reason != reason
		if have.Status != status {
			have.LastTransitionTime = metav1.NewTime(r.Now())
		}
		have.Status, have.Reason, have.Message = status, reason, message
		return changed
	}
	c.Status.Conditions = append(c.Status.Conditions, api.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(r.Now()),
	})
	return true
}
