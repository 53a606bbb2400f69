package snapshot

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// indications returns what each indication means.
func indications() map[api.Indication]string {
	return map[api.Indication]string{
		api.VMSnapshotOnlineSnapshotIndication:  "The VM was running.",
		api.VMSnapshotGuestAgentIndication:      "The guest agent froze the file systems: the snapshot is consistent.",
		api.VMSnapshotNoGuestAgentIndication:    "The guest has no agent: the snapshot is as after a power cut.",
		api.VMSnapshotQuiesceTimeoutIndication:  "The freeze of the file systems ended early: the snapshot is as after a power cut.",
		api.VMSnapshotPausedIndication:          "The VM was paused: the snapshot is as after a power cut.",
		api.VMSnapshotPartialSnapshotIndication: "Some PVCs are not in the snapshot: status.snapshotVolumes has them.",
	}
}

func indicated(s *vmSnapshot, i api.Indication) bool {
	return s.Status != nil && slices.ContainsFunc(s.Status.SourceIndications, func(have api.SourceIndication) bool { return have.Indication == i })
}

// indicate adds an indication, in both fields.
func indicate(s *vmSnapshot, i api.Indication) {
	if s.Status == nil {
		s.Status = new(api.VirtualMachineSnapshotStatus)
	}
	if !indicated(s, i) {
		s.Status.Indications = append(s.Status.Indications, i) //nolint:staticcheck // clients still read the deprecated field
		s.Status.SourceIndications = append(s.Status.SourceIndications, api.SourceIndication{Indication: i, Message: indications()[i]})
	}
}

// reporter writes the statuses of snapshots and of their contents.
type reporter struct {
	writer patcher
	now    func() time.Time
}

// report writes the snapshot's status. Why says what it waits for while it is in progress.
func (r *reporter) report(ctx context.Context, w *work, why string) error {
	s := w.s
	r.copyContent(w)
	st := s.Status
	switch {
	case st.Phase == api.Succeeded || st.CreationTime != nil:
		if st.Phase != api.Succeeded && st.Phase != api.InProgress { // nothing had to be waited for
			w.indicateSource()
		}
		st.Phase = api.Succeeded
		r.condition(s, api.ConditionProgressing, corev1.ConditionFalse, "Operation complete", "")
		w.listVolumes()
	default:
		st.Phase = api.InProgress
		progressing := corev1.ConditionFalse
		if w.locked {
			progressing = corev1.ConditionTrue
		}
		r.condition(s, api.ConditionProgressing, progressing, why, w.problem())
		w.indicateSource()
	}
	return r.write(ctx, w)
}

// reportFailure writes that the snapshot has passed its deadline.
func (r *reporter) reportFailure(ctx context.Context, w *work) error {
	last := ""
	if c := w.s.Status; c != nil && c.Error != nil && c.Error.Message != nil {
		last = *c.Error.Message
	} else if p := find(w.s, api.ConditionProgressing); p != nil && p.Status == corev1.ConditionFalse && phase(w.s) != api.Failed {
		last = p.Reason
	}
	r.copyContent(w)
	if phase(w.s) == api.Failed {
		return r.write(ctx, w)
	}
	w.s.Status.Phase = api.Failed
	r.condition(w.s, api.ConditionFailure, corev1.ConditionTrue, "snapshot deadline exceeded", last)
	r.condition(w.s, api.ConditionProgressing, corev1.ConditionFalse, "Operation failed", "")
	return r.write(ctx, w)
}

// copyContent copies the content's state into the snapshot's status.
func (r *reporter) copyContent(w *work) {
	if w.s.Status == nil {
		w.s.Status = new(api.VirtualMachineSnapshotStatus)
	}
	st := w.s.Status
	if w.vm != nil && st.SourceUID == nil {
		st.SourceUID = &w.vm.UID
	}
	no := false
	switch {
	case w.content != nil && w.content.Status != nil:
		st.VirtualMachineSnapshotContentName = &w.content.Name
		st.CreationTime, st.ReadyToUse, st.Error = w.content.Status.CreationTime, w.content.Status.ReadyToUse, w.content.Status.Error
	case w.content == nil:
		st.ReadyToUse = &no
	}
	if st.ReadyToUse == nil {
		st.ReadyToUse = &no
	}
	if w.refused == "" {
		return
	}
	now := metav1.NewTime(r.now())
	st.Error = &api.Error{Time: &now, Message: &w.refused}
	if was := w.was.Status; was != nil && was.Error != nil && was.Error.Message != nil && *was.Error.Message == w.refused {
		st.Error = was.Error.DeepCopy()
	}
}

// write completes the snapshot's status and writes it, if it differs.
func (r *reporter) write(ctx context.Context, w *work) error {
	if w.s.Status.ReadyToUse != nil && *w.s.Status.ReadyToUse {
		r.condition(w.s, api.ConditionReady, corev1.ConditionTrue, "Ready", "")
	} else {
		r.condition(w.s, api.ConditionReady, corev1.ConditionFalse, "Not ready", "")
	}
	if w.s.Status.Phase == api.InProgress && w.driverFailed() {
		r.condition(w.s, api.ConditionProgressing, corev1.ConditionFalse, "In error state", "")
	}
	if equality.Semantic.DeepEqual(w.was.Status, w.s.Status) {
		return nil
	}
	if err := r.writer.patchStatus(ctx, w.was, w.s); err != nil {
		return err
	}
	w.was = w.s.DeepCopy()
	return nil
}

// problem is why the last attempt of a snapshot in progress failed, or empty.
func (w *work) problem() string {
	if e := w.s.Status.Error; e != nil && e.Message != nil {
		return *e.Message
	}
	return ""
}

// driverFailed reports whether a storage driver, which tries again or not, could not take a VolumeSnapshot. All else
// that can fail is tried again.
func (w *work) driverFailed() bool {
	return w.content != nil && w.content.Status != nil && w.s.Status.Error != nil &&
		slices.ContainsFunc(w.content.Status.VolumeSnapshotStatus, func(s api.VolumeSnapshotStatus) bool { return s.Error != nil })
}

// indicateSource adds what the source's state means for the snapshot.
func (w *work) indicateSource() {
	switch {
	case w.vmi == nil:
		return
	case wantsMemory(w.s): // the file systems are as the memory has them
	case has(w.vmi, kubevirt.VirtualMachineInstancePaused):
		indicate(w.s, api.VMSnapshotPausedIndication)
	case has(w.vmi, kubevirt.VirtualMachineInstanceAgentConnected):
		indicate(w.s, api.VMSnapshotGuestAgentIndication)
	default:
		indicate(w.s, api.VMSnapshotNoGuestAgentIndication)
	}
	indicate(w.s, api.VMSnapshotOnlineSnapshotIndication)
}

// listVolumes lists which volumes the snapshot has.
func (w *work) listVolumes() {
	if w.content == nil || w.s.Status.SnapshotVolumes != nil {
		return
	}
	has := map[string]bool{}
	var kept []string
	for _, b := range w.content.Spec.VolumeBackups {
		has[b.VolumeName] = true
		if pod.IsSavedState(b.VolumeName) {
			kept = append(kept, b.VolumeName)
		}
	}
	lists := new(api.SnapshotVolumesLists)
	for _, v := range w.content.Spec.Source.VirtualMachine.Spec.Template.Spec.Volumes {
		if has[v.Name] {
			lists.IncludedVolumes = append(lists.IncludedVolumes, v.Name)
			continue
		}
		lists.ExcludedVolumes = append(lists.ExcludedVolumes, v.Name)
		if v.PersistentVolumeClaim != nil || v.DataVolume != nil {
			indicate(w.s, api.VMSnapshotPartialSnapshotIndication)
		}
	}
	lists.IncludedVolumes = append(lists.IncludedVolumes, kept...)
	w.s.Status.SnapshotVolumes = lists
}

func find(s *vmSnapshot, kind api.ConditionType) *api.Condition {
	if s.Status == nil {
		return nil
	}
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == kind {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

// condition sets a condition; KubeVirt has its sentence as the reason.
func (r *reporter) condition(s *vmSnapshot, kind api.ConditionType, status corev1.ConditionStatus, reason, message string) {
	now := metav1.NewTime(r.now())
	c := find(s, kind)
	if c == nil {
		s.Status.Conditions = append(s.Status.Conditions, api.Condition{Type: kind})
		c = find(s, kind)
	}
	if c.Status != status || c.Reason != reason || c.Message != message {
		if c.Status != status {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message = status, reason, message
	}
}

// reportContent writes the state of the content's VolumeSnapshots, and an error of the
// controller's, if any.
func (r *reporter) reportContent(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot, problem string) error {
	before := w.content.DeepCopy()
	return r.writeContent(ctx, w, before, r.contentStatus(w, have, problem))
}

func (r *reporter) writeContent(ctx context.Context, w *work, before *vmContent, next *api.VirtualMachineSnapshotContentStatus) error {
	if equality.Semantic.DeepEqual(before.Status, next) {
		return nil
	}
	w.content.Status = next
	return r.writer.patchStatus(ctx, before, w.content)
}

// contentStatus returns the content's status with the state of its VolumeSnapshots.
func (r *reporter) contentStatus(w *work, have map[string]volumesnapshot.Snapshot, problem string) *api.VirtualMachineSnapshotContentStatus {
	next := new(api.VirtualMachineSnapshotContentStatus)
	if w.content.Status != nil {
		next = w.content.Status.DeepCopy()
	}
	next.VolumeSnapshotStatus = nil
	usable := problem == "" && (MemoryPVC(w.content) == "" || next.CreationTime != nil)
	for _, b := range w.content.Spec.VolumeBackups {
		if b.VolumeSnapshotName == nil {
			continue
		}
		s, there := have[*b.VolumeSnapshotName]
		usable = usable && s.ReadyToUse != nil && *s.ReadyToUse
		if !there {
			if next.CreationTime != nil {
				problem = "VolumeSnapshots (" + *b.VolumeSnapshotName + ") missing"
			}
			continue
		}
		one := api.VolumeSnapshotStatus{VolumeSnapshotName: s.Name, CreationTime: s.CreationTime, ReadyToUse: s.ReadyToUse}
		if s.Error != "" {
			text := clip(s.Error)
			one.Error = &api.Error{Time: s.ErrorTime, Message: &text}
			if problem == "" && (s.ReadyToUse == nil || !*s.ReadyToUse) {
				problem = "VolumeSnapshot " + s.Name + " error: " + text
			}
		}
		next.VolumeSnapshotStatus = append(next.VolumeSnapshotStatus, one)
	}
	next.ReadyToUse = &usable
	retaken := next.Error != nil && next.Error.Message != nil && strings.HasPrefix(*next.Error.Message, thawedEarly)
	switch {
	case problem == "" && retaken && next.CreationTime == nil && !w.taken(have): // remembers the first attempt
	case problem == "":
		next.Error = nil
	case next.Error == nil || next.Error.Message == nil || *next.Error.Message != problem:
		now := metav1.NewTime(r.now())
		next.Error = &api.Error{Time: &now, Message: &problem}
	}
	return next
}
