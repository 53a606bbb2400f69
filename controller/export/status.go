package export

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// KubeVirt's reasons of conditions.
const (
	reasonUnknown       = "Unknown"
	reasonInitializing  = "Initializing"
	reasonInUse         = "InUse"
	reasonPodPending    = "PodPending"
	reasonPodReady      = "PodReady"
	reasonPodCompleted  = "PodCompleted"
	reasonPVCNotFound   = "PVCNotFound"
	reasonPVCBound      = "PVCBound"
	reasonPVCPending    = "PVCPending"
	reasonNoVM          = "VMNotFound"
	reasonNoVolumes     = "VMNoVolumes"
	reasonUnfilled      = "VolumesNotPopulated"
	reasonNoSnapshot    = "VMSnapshotNotFound"
	reasonEmptySnapshot = "VMSnapshotNoVolumes"
	reasonNotCreated    = "NotAllPVCsCreated"
	reasonAllPVCs       = "AllPVCsReady"
	reasonNotAllPVCs    = "NotAllPVCsReady"
)

// maxMessage bounds foreign text in a status, in bytes.
const maxMessage = 1024

// ready sets the condition Ready.
func (r *Reconciler) ready(w *work, status corev1.ConditionStatus, reason, message string) {
	r.condition(w.e, api.Condition{Type: api.ConditionReady, Status: status, Reason: reason, Message: fields.Clip(message, maxMessage)})
}

// condition sets a condition.
func (r *Reconciler) condition(e *vmExport, c api.Condition) {
	c.LastTransitionTime = metav1.NewTime(r.now())
	for i := range e.Status.Conditions {
		have := &e.Status.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		*have = c
		return
	}
	e.Status.Conditions = append(e.Status.Conditions, c)
}

func (r *Reconciler) event(w *work, kind, reason, format string, args ...any) {
	r.events.Eventf(w.e, nil, kind, reason, "Export", "%s", fields.Clip(fmt.Sprintf(format, args...), maxMessage))
}

// write writes the export's status, if it has changed.
func (r *Reconciler) write(ctx context.Context, w *work) error {
	if equality.Semantic.DeepEqual(w.was.Status, w.e.Status) {
		return nil
	}
	p := client.MergeFromWithOptions(w.was, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, w.e, p); err != nil {
		return fmt.Errorf("write status of export %s/%s: %w", w.e.Namespace, w.e.Name, err)
	}
	w.was = w.e.DeepCopy()
	return nil
}
