package installation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/setup"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AnnotationVersion is on the object, and has nodevirt's version. The status has that of KubeVirt's API.
const AnnotationVersion = "nodevirt.io/version"

// Reconciler keeps the object, and its status. KubeVirt's clients take an object without them for an installation that
// does not work, so the controller makes one where there is none. A deleted one comes back without configuration.
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Key is the name of the object.
	Key types.NamespacedName
	// Version is nodevirt's.
	Version string
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(m manager.Manager) error {
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(reconcile.Request{NamespacedName: r.Key}) // no event says that there is no object
		return nil
	})
	one := ctrl.NewControllerManagedBy(m).For(new(kubevirt.KubeVirt)).WatchesRawSource(first)
	return setup.Complete(one, "kubevirt", r, setup.Options{Workers: 1, Timeout: 30 * time.Second})
}

// Reconcile makes the object, or writes its status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.NamespacedName != r.Key {
		return ctrl.Result{}, nil // of a time before this controller; admission makes no others
	}
	object := new(kubevirt.KubeVirt)
	err := r.Client.Get(ctx, r.Key, object)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.create(ctx)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read KubeVirt %s: %w", r.Key, err)
	case object.DeletionTimestamp != nil:
		return ctrl.Result{}, nil
	}
	if object.Annotations[AnnotationVersion] != r.Version {
		before := object.DeepCopy()
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, AnnotationVersion, r.Version)
		if err := r.Client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("annotate KubeVirt %s: %w", r.Key, err))
		}
	}
	before := object.DeepCopy()
	r.setStatus(object)
	if equality.Semantic.DeepEqual(before.Status, object.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("write status of KubeVirt %s: %w", r.Key, err))
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) create(ctx context.Context) error {
	made := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Key.Namespace, Name: r.Key.Name, Annotations: map[string]string{AnnotationVersion: r.Version},
		Labels: map[string]string{"app.kubernetes.io/name": "nodevirt"},
	}}
	if err := r.Client.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create KubeVirt %s: %w", r.Key, err)
	}
	return nil // the object's event triggers the next step
}

// setStatus writes that the installation works at the object's generation. The reconcilers read the same cache: they
// have the configuration of that generation, too.
func (r *Reconciler) setStatus(object *kubevirt.KubeVirt) {
	s := &object.Status
	s.Phase = kubevirt.KubeVirtPhaseDeployed
	s.OperatorVersion, s.TargetKubeVirtVersion, s.ObservedKubeVirtVersion = config.APIVersion, config.APIVersion, config.APIVersion
	s.ObservedGeneration = &object.Generation
	s.DefaultArchitecture = vmspec.AMD64
	for _, c := range []kubevirt.KubeVirtCondition{
		{Type: kubevirt.KubeVirtConditionCreated, Status: corev1.ConditionTrue, Reason: "AllResourcesCreated", Message: "All resources were created."},
		{Type: kubevirt.KubeVirtConditionAvailable, Status: corev1.ConditionTrue, Reason: ready, Message: "All components are ready."},
		{Type: kubevirt.KubeVirtConditionProgressing, Status: corev1.ConditionFalse, Reason: ready, Message: "All components are ready."},
		{Type: kubevirt.KubeVirtConditionDegraded, Status: corev1.ConditionFalse, Reason: ready, Message: "All components are ready."},
	} {
		r.setCondition(s, c)
	}
}

const ready = "AllComponentsReady"

func (r *Reconciler) setCondition(s *kubevirt.KubeVirtStatus, c kubevirt.KubeVirtCondition) {
	c.LastTransitionTime = metav1.NewTime(r.Now().Truncate(time.Second))
	c.LastProbeTime = c.LastTransitionTime
	for i := range s.Conditions {
		have := &s.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		if have.Status != c.Status || have.Reason != c.Reason || have.Message != c.Message {
			*have = c
		}
		return
	}
	s.Conditions = append(s.Conditions, c)
}
