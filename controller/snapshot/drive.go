package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// thawedEarly is the error of a content whose VolumeSnapshots are taken for the second time.
const thawedEarly = "the guest's freeze ended before all VolumeSnapshots were taken; they are taken again"

// driver has the VolumeSnapshots of a content taken.
type driver struct {
	volumes  volumes
	events   events.EventRecorder
	now      func() time.Time
	memories memories
	captures interface {
		own(ctx context.Context, w *work) error
	}
	contents interface {
		classOf(ctx context.Context, storageClass *string) (string, error)
		have(ctx context.Context, content *vmContent) (map[string]volumesnapshot.Snapshot, error)
	}
	guests interface {
		order(ctx context.Context, w *work, control string, arguments ...string) (string, error)
		freeze(ctx context.Context, w *work) error
		frozen(ctx context.Context, w *work, atOnce bool) (bool, error)
	}
	statuses interface {
		reportContent(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot, problem string) error
		contentStatus(w *work, have map[string]volumesnapshot.Snapshot, problem string) *api.VirtualMachineSnapshotContentStatus
		writeContent(ctx context.Context, w *work, before *vmContent, next *api.VirtualMachineSnapshotContentStatus) error
	}
}

// drive takes the next step for a content without a creation time: it freezes the guest,
// creates the VolumeSnapshots, and thaws the guest once drivers have taken all of them. It
// returns when to look again.
//
// If the guest was thawed meanwhile, by its own limit for example, the VolumeSnapshots are
// of different moments. They are taken again once; after that the snapshot says what it is.
func (d *driver) drive(ctx context.Context, w *work) (time.Duration, error) {
	if err := d.captures.own(ctx, w); err != nil {
		return 0, err
	}
	have, err := d.contents.have(ctx, w.content)
	if err != nil {
		return 0, err
	}
	for _, s := range have {
		if s.Deleted {
			return time.Second, nil // then they are taken again
		}
	}
	if MemoryPVC(w.content) != "" {
		return d.driveMemory(ctx, w, have)
	}
	freezes := len(w.content.Spec.VolumeBackups) > 0 && w.writes() && !indicated(w.s, api.VMSnapshotQuiesceTimeoutIndication)
	taken := w.taken(have)
	if freezes {
		if again, err := d.hold(ctx, w, have, taken); again > 0 || err != nil {
			return again, err
		}
	}
	if !taken {
		if err := d.createMissing(ctx, w, have); err != nil {
			w.refused = err.Error()
			return 0, err
		}
		if have, err = d.contents.have(ctx, w.content); err != nil {
			return 0, err
		}
		return frozenPoll, d.statuses.reportContent(ctx, w, have, "")
	}
	if freezes {
		if _, err := d.guests.order(ctx, w, controlUnfreeze); err != nil {
			d.events.Eventf(w.s, w.vmi, corev1.EventTypeWarning, "UnfreezeFailed", "Unfreeze",
				"The guest thaws by itself within %s: %s", freezeLimit, err)
		}
	}
	return 0, d.refresh(ctx, w)
}

// hold freezes the guest before the first VolumeSnapshot, and keeps it frozen. It returns
// when to try again, if that is not possible now.
func (d *driver) hold(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot, taken bool) (time.Duration, error) {
	if len(have) == 0 {
		if err := d.guests.freeze(ctx, w); err != nil {
			d.events.Eventf(w.vmi, w.s, corev1.EventTypeWarning, "FreezeError", "Freeze", "Failed freezing vmi: %s", err)
			return retry, d.statuses.reportContent(ctx, w, have, err.Error())
		}
		return 0, nil
	}
	held, err := d.guests.frozen(ctx, w, taken)
	if err != nil {
		return time.Second, d.statuses.reportContent(ctx, w, have, err.Error())
	}
	if held {
		return 0, nil
	}
	if e := w.contentError(); e != nil && strings.HasPrefix(*e.Message, thawedEarly) {
		indicate(w.s, api.VMSnapshotQuiesceTimeoutIndication)
		return 0, nil
	}
	return time.Second, d.discard(ctx, w, have, thawedEarly)
}

// discard deletes VolumeSnapshots that are of different moments, or not of the memory's, and reports why.
func (d *driver) discard(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot, why string) error {
	for _, s := range have {
		if err := d.volumes.Delete(ctx, w.content.Namespace, s); err != nil {
			return err
		}
	}
	return d.statuses.reportContent(ctx, w, nil, why)
}

func (w *work) contentError() *api.Error {
	if s := w.content.Status; s != nil && s.Error != nil && s.Error.Message != nil {
		return s.Error
	}
	return nil
}

// taken reports whether drivers have taken all VolumeSnapshots of the content.
func (w *work) taken(have map[string]volumesnapshot.Snapshot) bool {
	return !slices.ContainsFunc(w.content.Spec.VolumeBackups, func(b api.VolumeBackup) bool {
		return b.VolumeSnapshotName != nil && have[*b.VolumeSnapshotName].CreationTime == nil
	})
}

func (d *driver) createMissing(ctx context.Context, w *work, have map[string]volumesnapshot.Snapshot) error {
	for _, b := range w.content.Spec.VolumeBackups {
		if b.VolumeSnapshotName == nil || have[*b.VolumeSnapshotName].Name != "" {
			continue
		}
		class, err := d.contents.classOf(ctx, b.PersistentVolumeClaim.Spec.StorageClassName)
		if err != nil {
			return err
		}
		if class == "" {
			return fmt.Errorf("PVC %s: its VolumeSnapshotClass is gone; create it again", b.PersistentVolumeClaim.Name)
		}
		meta := metav1.ObjectMeta{
			Name: *b.VolumeSnapshotName, Namespace: w.content.Namespace, Labels: labels(w.content),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(w.content, api.SchemeGroupVersion.WithKind(kindContent)),
			},
		}
		if err := d.volumes.Create(ctx, meta, b.PersistentVolumeClaim.Name, class); err != nil {
			return err
		}
		d.events.Eventf(w.content, nil, corev1.EventTypeNormal, "SuccessfulVolumeSnapshotCreate", "Create",
			"Successfully created VolumeSnapshot %s", meta.Name)
	}
	return nil
}

// refresh writes the state of the content's VolumeSnapshots into its status, and its
// creation time once all are taken.
func (d *driver) refresh(ctx context.Context, w *work) error {
	have, err := d.contents.have(ctx, w.content)
	if err != nil {
		return err
	}
	before := w.content.DeepCopy()
	next := d.statuses.contentStatus(w, have, "")
	if next.CreationTime == nil && w.taken(have) {
		now := metav1.NewTime(d.now())
		next.CreationTime = &now
	}
	return d.statuses.writeContent(ctx, w, before, next)
}
