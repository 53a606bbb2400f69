package clone

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	api "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type (
	vmClone     = api.VirtualMachineClone
	vmCloneList = api.VirtualMachineCloneList
)

// conflictWait is about how long the cache takes to have another reconciler's write.
const conflictWait = 50 * time.Millisecond

// Reconciler makes clones.
//
//	"" ─▶ SnapshotInProgress ─▶ RestoreInProgress ─▶ CreatingTargetVM ─▶ Succeeded: remove both,
//	             └──────────────────────┴───────────────────┴─▶ Failed   once PVCs are bound
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events reach the users of clones.
	Events events.EventRecorder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// work is a clone.
type work struct {
	c *vmClone
	// was is the clone as it was last read or written.
	was *vmClone
}

// key returns the key of an object in the clone's namespace.
func (w *work) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.c.Namespace, Name: name}
}

// meta returns the metadata of an object that the clone owns.
func (w *work) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: w.c.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.c, api.VirtualMachineCloneKind)},
	}
}

// Reconcile takes the next step for the clone of a name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := new(vmClone)
	if err := r.Client.Get(ctx, req.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil || c.Spec.Source == nil { // Kubernetes removes what it owns
		return ctrl.Result{}, nil
	}
	err := r.reconcile(ctx, &work{c: c, was: c.DeepCopy()})
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictWait}, nil
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) reconcile(ctx context.Context, w *work) error {
	switch w.c.Status.Phase {
	case api.Failed:
		return r.release(ctx, w)
	case api.Succeeded:
		return r.tend(ctx, w)
	}
	err := r.advance(ctx, w)
	var h *halt
	switch {
	case err == nil:
		return r.tend(ctx, w)
	case !errors.As(err, &h):
		if problem := r.report(ctx, w, &halt{reason: err.Error()}); problem != nil {
			return problem
		}
		return err
	}
	if err := r.report(ctx, w, h); err != nil || h.as != fails {
		return err
	}
	return r.release(ctx, w)
}

// advance takes all steps that are possible now, until the target exists.
func (r *Reconciler) advance(ctx context.Context, w *work) error {
	rs, err := r.restore(ctx, w)
	if err != nil {
		return err
	}
	if err := r.restored(ctx, w, rs); err != nil {
		return err
	}
	w.c.Status.Phase, w.c.Status.TargetName = api.CreatingTargetVM, &rs.Spec.Target.Name
	exists, err := r.exists(ctx, w, rs.Spec.Target.Name)
	if err != nil {
		return err
	}
	if !exists {
		return failure("TargetVMDeleted", "VM %s has been deleted", rs.Spec.Target.Name)
	}
	now := metav1.NewTime(r.Now())
	w.c.Status.Phase, w.c.Status.CreationTime = api.Succeeded, &now
	if err := r.report(ctx, w, nil); err != nil {
		return err
	}
	r.event(w, corev1.EventTypeNormal, "RestoreReady", "restore %s for clone %s is complete", rs.Name, w.c.Name)
	r.event(w, corev1.EventTypeNormal, "TargetVMCreated", "created target VM %s for clone %s", rs.Spec.Target.Name, w.c.Name)
	return nil
}

// exists reports whether there is a VM of a name. The cache may be behind.
func (r *Reconciler) exists(ctx context.Context, w *work, name string) (bool, error) {
	err := r.Live.Get(ctx, w.key(name), new(kubevirt.VirtualMachine))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read VM %s: %w", w.key(name), err)
	}
	return err == nil, nil
}

// tend removes the snapshot and the restore of a clone that has succeeded, once its PVCs do not
// need them any more. It deletes a clone whose VM is gone, as KubeVirt does.
func (r *Reconciler) tend(ctx context.Context, w *work) error {
	name := targetName(w.c)
	err := r.Client.Get(ctx, w.key(name), new(kubevirt.VirtualMachine))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read VM %s: %w", w.key(name), err)
	}
	if err != nil {
		if there, err := r.exists(ctx, w, name); there || err != nil {
			return err
		}
		err := r.Client.Delete(ctx, w.c, client.Preconditions{UID: &w.c.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete clone %s, whose VM is gone: %w", w.c.Name, err)
		}
		return nil
	}
	if w.c.Status.RestoreName == nil {
		return nil
	}
	unbound, err := r.unbound(ctx, w)
	if err != nil {
		return err
	}
	if unbound != "" {
		r.condition(w.c, api.ConditionReady, corev1.ConditionTrue, reasonReady, fmt.Sprintf("PVC %s is not bound: start the VM", unbound))
		return r.write(ctx, w)
	}
	r.condition(w.c, api.ConditionReady, corev1.ConditionTrue, reasonReady, "")
	r.event(w, corev1.EventTypeNormal, "PVCBound", "all PVCs of clone %s are bound", w.c.Name)
	return r.release(ctx, w)
}

// unbound returns the name of a PVC that is not filled yet; "" for none.
func (r *Reconciler) unbound(ctx context.Context, w *work) (string, error) {
	rs := new(snapshotapi.VirtualMachineRestore)
	err := r.Client.Get(ctx, w.key(*w.c.Status.RestoreName), rs)
	if apierrors.IsNotFound(err) || err == nil && rs.Status == nil {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read restore %s: %w", *w.c.Status.RestoreName, err)
	}
	for _, one := range rs.Status.Restores {
		pvc := new(corev1.PersistentVolumeClaim)
		err := r.Live.Get(ctx, w.key(one.PersistentVolumeClaimName), pvc)
		switch {
		case apierrors.IsNotFound(err): // a user has deleted it
		case err != nil:
			return "", fmt.Errorf("read PVC %s: %w", one.PersistentVolumeClaimName, err)
		case pvc.Status.Phase != corev1.ClaimBound:
			return pvc.Name, nil
		}
	}
	return "", nil
}

// release removes the restore and the snapshot that the clone made.
func (r *Reconciler) release(ctx context.Context, w *work) error {
	if n := w.c.Status.RestoreName; n != nil {
		if err := r.remove(ctx, w, new(snapshotapi.VirtualMachineRestore), *n); err != nil {
			return err
		}
	}
	if n := w.c.Status.SnapshotName; n != nil {
		if err := r.remove(ctx, w, new(snapshotapi.VirtualMachineSnapshot), *n); err != nil {
			return err
		}
	}
	w.c.Status.RestoreName, w.c.Status.SnapshotName = nil, nil
	return r.write(ctx, w)
}

// remove deletes an object that the clone owns, if it exists.
func (r *Reconciler) remove(ctx context.Context, w *work, o client.Object, name string) error {
	err := r.Client.Get(ctx, w.key(name), o)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(o, w.c) {
		return nil
	}
	if err == nil {
		uid := o.GetUID()
		err = r.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s of clone %s: %w", name, w.c.Name, err)
	}
	return nil
}
