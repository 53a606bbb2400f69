package vmi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// reporter writes the statuses of instances.
type reporter struct {
	client client.Client
	events events.EventRecorder
	now    func() time.Time
}

// report writes the instance's status if it has changed, and sends events about what
// users may want to act on.
func (w *reporter) report(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) error {
	next := status(vmi, v, w.now())
	if equality.Semantic.DeepEqual(next, vmi.Status) {
		return nil
	}
	before := vmi.Status
	if err := w.write(ctx, vmi, next); err != nil {
		return ignoreGone(err)
	}
	for _, n := range news(&before, &next, v) {
		w.events.Eventf(vmi, nil, n.kind, n.reason, n.action, "%s", n.text)
	}
	return nil
}

// write writes a status, if the instance is still the one that was read, and reads the instance
// as it is then. The patch is made of the statuses alone.
func (w *reporter) write(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, next kubevirt.VirtualMachineInstanceStatus) error {
	key := metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name, ResourceVersion: vmi.ResourceVersion}
	before := &kubevirt.VirtualMachineInstance{ObjectMeta: key, Status: vmi.Status}
	after := &kubevirt.VirtualMachineInstance{ObjectMeta: key, Status: next}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("write status of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	*vmi = *after
	return nil
}

// item is one event for the instance's users.
type item struct {
	kind, reason, action, text string
}

// news returns the events between two statuses.
func news(before, after *kubevirt.VirtualMachineInstanceStatus, v view) []item {
	var all []item
	warn := func(reason, text string) {
		all = append(all, item{corev1.EventTypeWarning, reason, "Run", text})
	}
	if after.Phase != before.Phase {
		switch after.Phase {
		case kubevirt.Running:
			all = append(all,
				item{corev1.EventTypeNormal, kubevirt.Created.String(), "Run", "VirtualMachineInstance defined."},
				item{corev1.EventTypeNormal, kubevirt.Started.String(), "Run", "VirtualMachineInstance started."})
		case kubevirt.Succeeded:
			all = append(all, item{corev1.EventTypeNormal, kubevirt.Stopped.String(), "Stop", v.shutDown()})
		case kubevirt.Failed:
			warn(v.failureEvent(), v.why())
			if c := v.compute(); c != nil && c.Terminated != nil && c.Terminated.Reason == condition.ReasonGuestPanicked {
				warn(condition.ReasonGuestPanicked, "The guest's kernel panicked.")
			}
		}
	}
	if after.Phase == kubevirt.Unknown && (before.Phase != after.Phase || before.Reason != after.Reason) {
		warn(after.Reason, v.unknown(after.NodeName))
	}
	all = append(all, accessNews(before.Conditions, after.Conditions)...)
	for _, now := range after.Conditions {
		was := find(before.Conditions, now.Type)
		bad := now.Type == kubevirt.VirtualMachineInstanceSynchronized ||
			now.Type == podScheduled
		if !bad || now.Status != corev1.ConditionFalse || (was != nil && sameTrouble(*was, now)) {
			continue
		}
		if v.pod == nil && now.Type == podScheduled {
			continue // the other condition says it
		}
		switch {
		case now.Type == podScheduled: // the scheduler warns on the pod; KubeVirt has no warning on the instance
			all = append(all, item{corev1.EventTypeNormal, "FailedScheduling", "Run", now.Message})
		case now.Reason == ReasonDataVolumeNotReady, now.Reason == condition.ReasonUnfinished: // nothing is wrong
			all = append(all, item{corev1.EventTypeNormal, now.Reason, "Run", now.Message})
		default:
			warn(now.Reason, now.Message)
		}
	}
	return all
}

// unknown says why it is not known whether a guest runs, and how to have it start elsewhere.
func (v view) unknown(node string) string {
	if v.away != nil {
		return v.elsewhere()
	}
	if v.waits {
		return v.awaited() + "."
	}
	if v.node.deleted {
		return fmt.Sprintf("The Node object of %s was deleted, and the guest may still run there. The guest starts elsewhere "+
			"when it has ended, or when the node has given no sign of life for %s.", node, patience(v.pod))
	}
	return fmt.Sprintf("Node %s does not report. If the node is off for good, taint it %s: the guest then starts elsewhere. "+
		"To delete the Node object has the same effect, but Kubernetes detaches its volumes only after 6 minutes.",
		node, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
}

// accessNews returns KubeVirt's events about access credentials. A guest whose agent is not
// there is no event: each one begins so.
func accessNews(before, after []cond) []item {
	was := find(before, kubevirt.VirtualMachineInstanceAccessCredentialsSynchronized)
	now := find(after, kubevirt.VirtualMachineInstanceAccessCredentialsSynchronized)
	switch {
	case now == nil || now.Reason == condition.ReasonAgentDisconnected,
		was != nil && was.Status == now.Status && was.Message == now.Message:
		return nil
	case now.Status == corev1.ConditionTrue:
		return []item{{corev1.EventTypeNormal, kubevirt.AccessCredentialsSyncSuccess.String(), "Run", "Access credentials sync successful."}}
	}
	return []item{{corev1.EventTypeWarning, kubevirt.AccessCredentialsSyncFailed.String(), "Run",
		"Access credentials sync failed: " + now.Message}}
}

func find(all []cond, kind kubevirt.VirtualMachineInstanceConditionType) *cond {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// sameTrouble reports whether one event is enough for two conditions: a failed pull alternates with the
// wait for the next one, and the kubelet repeats the node's message.
func sameTrouble(a, b cond) bool {
	pull := func(c cond) bool { return c.Reason == "ErrImagePull" || c.Reason == "ImagePullBackOff" }
	if pull(a) && pull(b) {
		return true
	}
	if (a.Reason == ReasonDataVolumeNotReady || a.Reason == condition.ReasonUnfinished) && a.Reason == b.Reason { // only the progress differs
		return true
	}
	return a.Status == b.Status && a.Message == b.Message && (a.Reason == b.Reason || a.Message != "")
}

// poweredOff says why a guest has powered off.
func (v view) poweredOff() string {
	if v.unhealthy {
		return "The VM's liveness probe failed, and the kubelet had the guest power off."
	}
	return "The guest has powered off."
}

// shutDown returns the text about a guest that has powered off.
func (v view) shutDown() string {
	if v.disrupted() {
		return "The VirtualMachineInstance was shut down: " + v.disruption()
	}
	if v.unhealthy {
		return "The VirtualMachineInstance was shut down: its liveness probe failed."
	}
	return "The VirtualMachineInstance was shut down."
}

// failureEvent returns the reason of the event about a failed instance: KubeVirt's for
// a guest that ran, if it did.
func (v view) failureEvent() string {
	if c := v.compute(); c != nil && c.Terminated != nil {
		return kubevirt.Stopped.String()
	}
	return "Failed"
}

// why returns why an instance has failed.
func (v view) why() string {
	switch c := v.compute(); {
	case v.gone:
		return "The pod is gone, and with it the record of the guest's end."
	case v.node.gone:
		return fmt.Sprintf("Node %s is gone, and the guest with it.", v.pod.Spec.NodeName)
	case v.disrupted() && !v.node.outOfService:
		return fmt.Sprintf("The guest did not shut down in its grace period, and was powered off (exit code %d): %s",
			c.Terminated.ExitCode, v.disruption())
	case v.missing():
		return v.lostContainer()
	case v.unhealthy && c != nil && c.Terminated != nil:
		return fmt.Sprintf("The VM's liveness probe failed, and the guest did not shut down in its grace period: exit code %d", c.Terminated.ExitCode)
	case c != nil && c.Terminated != nil && c.Terminated.Reason == condition.ReasonNodeShutdown:
		return fmt.Sprintf("The VirtualMachineInstance ended with its node %s: %s", v.pod.Spec.NodeName, ofVM(c.Terminated.Message))
	case c != nil && c.Terminated != nil:
		return fmt.Sprintf("The VirtualMachineInstance crashed: exit code %d, %s: %s",
			c.Terminated.ExitCode, c.Terminated.Reason, ofVM(c.Terminated.Message))
	case v.node.outOfService:
		return fmt.Sprintf("Node %s was declared out of service.", v.pod.Spec.NodeName)
	case v.pod.Status.Reason != "" || v.pod.Status.Message != "":
		return fmt.Sprintf("The pod failed: %s: %s", v.pod.Status.Reason, v.pod.Status.Message)
	}
	return "The pod was removed before its guest started."
}

// wait reports why an instance waits for its PVCs. Their events, and those of the pods
// that use them, trigger the next step. No events of DataVolumes arrive here.
func (w *reporter) wait(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, t *trouble, err error) (ctrl.Result, error) {
	if err != nil {
		return ctrl.Result{}, err
	}
	again := ctrl.Result{}
	if t.poll {
		again.RequeueAfter = pollDataVolume
	}
	return again, w.report(ctx, vmi, view{trouble: t})
}
