package backup

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/backup/v1alpha1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/export"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

const (
	kindBackup = "VirtualMachineBackup"
	// defaultTTL is KubeVirt's time of a backup in mode Pull, from its creation.
	defaultTTL = 2 * time.Hour
	// KubeVirt's messages.
	preparing = "Backup export is being initialized"
	ready     = "Backup export is ready to pull"
	aborting  = "Backup is aborting"
	// expired is why a backup fails that no client could read.
	expired = "its ttlDuration was over before clients could read it"
)

// left returns what is left of the time of a backup in mode Pull.
func (w *work) left(now time.Time) time.Duration {
	ttl := defaultTTL
	if d := w.backup.Spec.TTLDuration; d != nil {
		ttl = d.Duration
	}
	return w.backup.CreationTimestamp.Add(ttl).Sub(now)
}

// offered reports whether clients could read a backup in mode Pull.
func (w *work) offered() bool { return w.backup.Status != nil && w.backup.Status.ExportUID != nil }

// offers returns volumes with the endpoints that the status has.
func (w *work) offers(all []api.BackupVolumeInfo) []api.BackupVolumeInfo {
	for i := range all {
		for _, had := range w.status().IncludedVolumes {
			if had.VolumeName == all[i].VolumeName {
				all[i].DataEndpoint, all[i].MapEndpoint = had.DataEndpoint, had.MapEndpoint
			}
		}
	}
	return all
}

// pull has an export's pod serve what the node offers, and says where.
func (r *Reconciler) pull(ctx context.Context, w *work) (time.Duration, error) {
	if !isExported(w) { // the export reads the volumes
		if err := r.report(ctx, w, progressing(api.ReasonPreparingExport, preparing)); err != nil {
			return 0, err
		}
	}
	e, why, err := exports{r.Client}.of(ctx, w, w.left(r.Now()))
	if err != nil {
		return 0, err
	}
	if e == nil {
		return poll, r.report(ctx, w, w.unready(why))
	}
	served, why, err := r.serve(ctx, w, e)
	if err != nil {
		return 0, err
	}
	if !served || !w.link(e) {
		return poll, r.report(ctx, w, w.unready(why))
	}
	w.status().ExportUID = &e.UID
	return min(retry, max(w.left(r.Now()), poll)), r.report(ctx, w, progressing(api.ReasonExportReady, ready))
}

// isExported reports whether a backup has an export, or gets one.
func isExported(w *work) bool {
	c := meta.FindStatusCondition(w.status().Conditions, string(api.ConditionProgressing))
	return c != nil && (c.Reason == api.ReasonPreparingExport || c.Reason == api.ReasonExportReady)
}

// withdraw removes the endpoints from the status.
func (w *work) withdraw() {
	s := w.status()
	s.EndpointCert = nil
	for i := range s.IncludedVolumes {
		s.IncludedVolumes[i].DataEndpoint, s.IncludedVolumes[i].MapEndpoint = "", ""
	}
}

// unready removes the endpoints of a pod that does not serve now, and returns the backup's condition.
func (w *work) unready(why string) metav1.Condition {
	w.withdraw()
	return progressing(api.ReasonPreparingExport, cmp.Or(clip(why), preparing))
}

// exports are the exports of backups.
type exports struct{ client client.Client }

// of returns the backup's export, which it creates for the time that is left. Without one, it returns
// what is wrong, if anything is.
func (x exports) of(ctx context.Context, w *work, left time.Duration) (e *exportapi.VirtualMachineExport, why string, err error) {
	e, key := new(exportapi.VirtualMachineExport), client.ObjectKeyFromObject(w.backup)
	err = x.client.Get(ctx, key, e)
	switch {
	case err == nil && !metav1.IsControlledBy(e, w.backup):
		return nil, fmt.Sprintf("VMExport %s already exists but is not owned by backup %s", e.Name, w.backup.Name), nil
	case err == nil && e.DeletionTimestamp != nil:
		return nil, "", nil
	case err == nil:
		return e, "", nil
	case !apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("read export %s: %w", key, err)
	}
	owner := metav1.NewControllerRef(w.backup, api.SchemeGroupVersion.WithKind(kindBackup))
	owner.BlockOwnerDeletion = nil
	group := api.SchemeGroupVersion.Group
	e = &exportapi.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{*owner},
	}}
	e.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kindBackup, Name: w.backup.Name}
	e.Spec.TokenSecretRef = &w.backup.Spec.TokenSecretRef
	e.Spec.TTLDuration = &metav1.Duration{Duration: max(left, 0).Round(time.Second) + time.Minute} // the backup ends it
	if err := x.client.Create(ctx, e); err != nil {
		return nil, "", fmt.Errorf("create export %s: %w", key, err)
	}
	return nil, "", nil
}

// serve has the node serve the pod of an export, and reports whether both are ready. The order is
// repeated: the node serves a container once.
func (r *Reconciler) serve(ctx context.Context, w *work, e *exportapi.VirtualMachineExport) (done bool, why string, err error) {
	p := new(corev1.Pod)
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: export.PodName(e)}, p)
	if apierrors.IsNotFound(err) {
		return false, complaint(e), nil
	}
	if err != nil {
		return false, "", fmt.Errorf("read the pod of export %s: %w", e.Name, err)
	}
	id := running(p)
	if id == "" || !metav1.IsControlledBy(p, e) {
		return false, complaint(e), nil
	}
	answer, refused := r.give(ctx, w, order.BackupServe, order.BackupReaders{Name: w.name(), Container: id})
	if refused != nil {
		why = refused.Error()
	}
	return refused == nil && answer.Readers == id && e.Status != nil && e.Status.Phase == exportapi.Ready, why, nil
}

// running returns the ID of the container that serves in the pod of an export; "" if it does not run.
func running(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return ""
	}
	for _, c := range p.Status.ContainerStatuses {
		if _, id, is := strings.Cut(c.ContainerID, "://"); is && c.Name == export.Container && c.State.Running != nil {
			return id
		}
	}
	return ""
}

// complaint returns what an export waits for, if it says so.
func complaint(e *exportapi.VirtualMachineExport) string {
	if e.Status == nil {
		return ""
	}
	for _, c := range e.Status.Conditions {
		if c.Type == exportapi.ConditionReady && c.Status != corev1.ConditionTrue && c.Message != "" {
			return "export " + e.Name + ": " + c.Message
		}
	}
	return ""
}

// link takes over the links of an export, and reports whether it has one to each endpoint.
func (w *work) link(e *exportapi.VirtualMachineExport) bool {
	if e.Status.Links == nil || e.Status.Links.Internal == nil || e.Status.Links.Internal.Cert == "" {
		return false
	}
	links, s := e.Status.Links.Internal, w.status()
	urls := map[string]string{}
	for _, b := range links.Backups {
		for _, one := range b.Endpoints {
			urls[string(one.Endpoint)+"/"+b.Name] = one.Url
		}
	}
	for i := range s.IncludedVolumes {
		v := &s.IncludedVolumes[i]
		v.DataEndpoint, v.MapEndpoint = urls[string(exportapi.Data)+"/"+v.VolumeName], urls[string(exportapi.Map)+"/"+v.VolumeName]
		if v.DataEndpoint == "" || v.MapEndpoint == "" {
			return false
		}
	}
	s.EndpointCert = &links.Cert
	return true
}

// finish ends a backup in mode Pull whose time is over, or which is being deleted. As with KubeVirt
// it is complete then, if clients could read it.
func (r *Reconciler) finish(ctx context.Context, w *work, why string) (time.Duration, error) {
	control := order.BackupCancel
	if w.offered() {
		control = order.BackupFinish
	}
	answer, err := r.give(ctx, w, control, order.Name{Name: w.name()})
	message := aborting
	if why != "" {
		message = why + ": " + aborting
	}
	if err != nil {
		return retry, r.report(ctx, w, progressing(api.ReasonAborting, message+": "+clip(err.Error())))
	}
	switch state := answer.State; {
	case state == order.BackupCompleted:
		w.take(answer)
		return 0, r.complete(ctx, w, answer)
	case state == order.BackupFailed && w.offered():
		return 0, r.fail(ctx, w, api.ReasonFailed, answer.Message)
	case state == order.BackupFailed, state == order.BackupNone && !w.offered():
		return 0, r.fail(ctx, w, api.ReasonFailed, expired)
	case state == order.BackupNone:
		return 0, r.fail(ctx, w, api.ReasonFailed, "the VM's node does not know the backup")
	}
	return poll, r.report(ctx, w, progressing(api.ReasonAborting, message))
}

// remove deletes the export of a backup in mode Pull.
func (x exports) remove(ctx context.Context, w *work) error {
	if !pulls(&w.backup.Spec) {
		return nil
	}
	e, key := new(exportapi.VirtualMachineExport), client.ObjectKeyFromObject(w.backup)
	if err := x.client.Get(ctx, key, e); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(e, w.backup) || e.DeletionTimestamp != nil {
		return nil
	}
	if err := x.client.Delete(ctx, e, client.Preconditions{UID: &e.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete export %s: %w", key, err)
	}
	return nil
}
