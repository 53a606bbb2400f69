package hotplug

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/setup"
)

const (
	// indexAttachment finds attachment pods by the UID of the VM's pod.
	indexAttachment = "nodevirt.io/attachment"
	// indexAttached finds them by the name of their instance.
	indexAttached = "nodevirt.io/attached-instance"
)

// Indexes returns the indexes of pods by their names.
func Indexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		indexAttachment: func(o client.Object) []string {
			if _, own, is := pod.AttachedTo(o.(*corev1.Pod)); is {
				return []string{string(own)}
			}
			return nil
		},
		indexAttached: func(o client.Object) []string {
			if name, _, is := pod.AttachedTo(o.(*corev1.Pod)); is {
				return []string{name}
			}
			return nil
		},
	}
}

// SetUp lets the manager run the reconciler. The index of instances by their PVCs exists.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	for name, key := range Indexes() {
		if err := index.Add(ctx, m, new(corev1.Pod), name, key); err != nil {
			return err
		}
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(kubevirt.VirtualMachineInstance)).
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(new(corev1.PersistentVolumeClaim), index.Handler(r.Client, new(kubevirt.VirtualMachineInstanceList), index.PVC, client.Object.GetName))
	return setup.Complete(all, "hotplug", r, setup.Options{Workers: 16, Timeout: 3 * time.Minute})
}

// ofPod returns the instance of a pod, and the instances that may wait for its PVCs.
func (r *Reconciler) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	p := o.(*corev1.Pod)
	var all []reconcile.Request
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, index.Requests(
				ctx, r.Client, new(kubevirt.VirtualMachineInstanceList), p.Namespace, index.PVC, v.PersistentVolumeClaim.ClaimName)...)
		}
	}
	name, _, is := pod.AttachedTo(p)
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == kubevirt.VirtualMachineInstanceGroupVersionKind.Kind {
		name, is = owner.Name, true
	}
	if is {
		all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: name}})
	}
	return all
}
