package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

type (
	vmExport     = api.VirtualMachineExport
	vmExportList = api.VirtualMachineExportList
)

const (
	// pendingPoll and readyPoll are the times between two looks at what no cache has, such as
	// foreign pods: while the export waits for something, and while it is served.
	pendingPoll = 3 * time.Second
	readyPoll   = 20 * time.Second
	// conflictWait is about how long the cache takes to have another reconciler's write.
	conflictWait = 50 * time.Millisecond
)

// snapshots reads VolumeSnapshots; [volumesnapshot.Client].
type snapshots interface {
	Get(ctx context.Context, namespace, name string) (*volumesnapshot.Snapshot, error)
}

// dataVolumes reads CDI's objects; [datavolume.Client].
type dataVolumes interface {
	Get(ctx context.Context, namespace, name string) (datavolume.State, error)
}

// Options are what the reconciler of exports works with.
type Options struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server, and writes what no cache has.
	Live client.Client
	// DataVolumes and Snapshots are read where a source has some.
	DataVolumes dataVolumes
	Snapshots   snapshots
	// Pods are read for backups.
	Pods pods
	// Events reach the users of exports.
	Events events.EventRecorder
	// Image is that of the exports' pods; "" if the controller knows none.
	Image string
	// Support returns what the KubeVirt object says of containers that serve VMs.
	Support func() []kubevirt.SupportContainerResources
	// ProxyNamespace is the namespace of the export proxy and its Ingresses; "" if the controller knows none.
	ProxyNamespace string
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconciler serves exports.
//
//	Pending ◀──▶ Ready ─▶ Terminated: deleted after its time
//	   └─▶ Skipped, while the source has no volumes
type Reconciler struct {
	client  client.Client
	live    client.Client
	sources *sources
	// ingresses finds the host of the export proxy.
	ingresses *ingresses
	events    events.EventRecorder
	image     string
	support   func() []kubevirt.SupportContainerResources
	now       func() time.Time
}

// NewReconciler joins a reconciler's parts.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{
		client: o.Client, live: o.Live, events: o.Events, image: o.Image, support: o.Support, now: o.Now,
		ingresses: &ingresses{live: o.Live, namespace: o.ProxyNamespace, events: o.Events, now: o.Now},
		sources:   &sources{client: o.Client, live: o.Live, dataVolumes: o.DataVolumes, snapshots: o.Snapshots, pods: o.Pods},
	}
}

// work is an export.
type work struct {
	e *vmExport
	// was is the export as it was last read or written.
	was *vmExport
	// expires is the end of the export's time.
	expires time.Time
	// outside is where the export proxy was reached when the pod was made; nil for nowhere.
	outside *external
}

// key returns the key of an object in the export's namespace.
func (w *work) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.e.Namespace, Name: name}
}

// meta returns the metadata of an object that the export owns.
func (w *work) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: w.e.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.e, api.SchemeGroupVersion.WithKind("VirtualMachineExport"))},
	}
}

// Reconcile takes the next step for the export of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	e := new(vmExport)
	if err := r.client.Get(ctx, req.NamespacedName, e); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if e.DeletionTimestamp != nil { // Kubernetes removes what it owns
		return ctrl.Result{}, nil
	}
	w := r.begin(e)
	left := w.expires.Sub(r.now())
	if left <= 0 {
		return ctrl.Result{}, r.end(ctx, w)
	}
	again, err := r.advance(ctx, w)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	if err != nil {
		r.ready(w, corev1.ConditionFalse, reasonUnknown, err.Error())
		if problem := r.write(ctx, w); problem != nil && !apierrors.IsConflict(problem) {
			err = errors.Join(err, problem)
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: min(again, left)}, r.write(ctx, w)
}

// begin returns an export with a status.
func (r *Reconciler) begin(e *vmExport) *work {
	ttl := api.DefaultDurationTTL
	if d := e.Spec.TTLDuration; d != nil {
		ttl = d.Duration
	}
	w := &work{e: e, was: e.DeepCopy(), expires: e.CreationTimestamp.Add(ttl)}
	if e.Status == nil {
		expires := metav1.NewTime(w.expires)
		e.Status = &api.VirtualMachineExportStatus{Phase: api.Pending, TTLExpirationTime: &expires}
		if ref := e.Spec.TokenSecretRef; ref != nil && *ref != "" {
			e.Status.TokenSecretRef = ref
		}
		r.ready(w, corev1.ConditionFalse, reasonInitializing, "")
	}
	return w
}

// advance takes all steps that are possible now, and returns when to look again.
func (r *Reconciler) advance(ctx context.Context, w *work) (time.Duration, error) {
	service, err := r.service(ctx, w)
	if err != nil {
		return 0, err
	}
	w.e.Status.ServiceName = service
	s, err := r.sources.find(ctx, w)
	if err != nil {
		return 0, err
	}
	if s.vm != "" {
		w.e.Status.VirtualMachineName = &s.vm
	}
	for _, c := range s.conditions {
		r.condition(w.e, c)
	}
	p, err := r.pod(ctx, w)
	if err != nil {
		return 0, err
	}
	if _, why := image(w, s); why != nil && s.why == nil {
		s.why = why
	}
	if s.why != nil {
		return pendingPoll, r.pause(ctx, w, s, p)
	}
	if p == nil {
		if p, err = r.launch(ctx, w, s); err != nil {
			return 0, err
		}
	}
	return r.follow(ctx, w, p)
}

// pause ends the pod of an export whose source is not available.
func (r *Reconciler) pause(ctx context.Context, w *work, s *source, p *corev1.Pod) error {
	w.e.Status.Phase, w.e.Status.Links = api.Pending, nil
	if s.empty {
		w.e.Status.Phase = api.Skipped
	}
	r.ready(w, corev1.ConditionFalse, s.why.reason, s.why.message)
	if wantsImage(w.e) {
		r.pushed(w, corev1.ConditionFalse, s.why.reason, s.why.message)
	}
	if p == nil || p.DeletionTimestamp != nil {
		return nil
	}
	r.event(w, corev1.EventTypeWarning, "ExportPaused", "%s", s.why.message)
	return r.remove(ctx, p)
}

// follow reports what the pod does.
func (r *Reconciler) follow(ctx context.Context, w *work, p *corev1.Pod) (time.Duration, error) {
	w.e.Status.Phase, w.e.Status.Links = api.Pending, nil
	r.watch(w, p)
	switch phase := p.Status.Phase; {
	case p.DeletionTimestamp != nil:
		r.ready(w, corev1.ConditionFalse, reasonPodPending, "the former pod ends")
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		message := fmt.Sprintf("Exporter pod %s/%s is in phase %s", p.Namespace, p.Name, phase)
		if p.Status.Message != "" {
			message += ": " + p.Status.Message
		}
		r.ready(w, corev1.ConditionFalse, reasonPodCompleted, message)
		r.event(w, corev1.EventTypeWarning, "ExporterPodFailedOrCompleted", "%s", message)
		return pendingPoll, r.remove(ctx, p)
	case !isReady(p):
		why, err := r.trouble(ctx, p)
		if err != nil {
			return 0, err
		}
		r.ready(w, corev1.ConditionFalse, reasonPodPending, why)
	default:
		x, known := r.ingresses.outside(ctx, w)
		all, err := links(w, p, x, known)
		if err != nil {
			return 0, err
		}
		w.e.Status.Phase, w.e.Status.Links = api.Ready, all
		r.ready(w, corev1.ConditionTrue, reasonPodReady, "")
		return readyPoll, nil
	}
	return pendingPoll, nil
}

// end deletes an export after its time.
func (r *Reconciler) end(ctx context.Context, w *work) error {
	w.e.Status.Phase, w.e.Status.Links = api.Terminated, nil
	r.ready(w, corev1.ConditionFalse, reasonPodCompleted, "the export's time is over")
	if err := r.write(ctx, w); err != nil {
		return err
	}
	p, err := r.pod(ctx, w) // an export with a finalizer outlives its time
	if err == nil && p != nil {
		err = r.remove(ctx, p)
	}
	if err != nil {
		return err
	}
	err = r.client.Delete(ctx, w.e, client.Preconditions{UID: &w.e.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete export %s/%s after its time: %w", w.e.Namespace, w.e.Name, err)
	}
	return nil
}

// remove deletes a pod of an export.
func (r *Reconciler) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.client.Delete(ctx, p, client.Preconditions{UID: &p.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}
