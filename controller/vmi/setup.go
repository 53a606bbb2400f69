package vmi

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/setup"
)

const (
	// indexInstance finds pods by the name of the instance that they are of.
	indexInstance = "nodevirt.io/instance"
	// indexNode finds pods by the name of their node.
	indexNode = "nodevirt.io/node"
	// indexTarget finds pods by the keys of their network disks.
	indexTarget = "nodevirt.io/network-disk"
	// indexLabels finds nodes by the kinds of their labels.
	indexLabels = "nodevirt.io/labels"
	// turn is about how long another worker takes to create a pod.
	turn = 50 * time.Millisecond
)

// Indexes returns the indexes of pods by their names.
func Indexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		indexInstance: func(o client.Object) []string {
			if from, ours := originOf(o.(*corev1.Pod)); ours {
				return []string{from.name}
			}
			return nil
		},
		indexNode:   func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} },
		index.PVC:   func(o client.Object) []string { return pvcsOf(o.(*corev1.Pod)) },
		indexTarget: func(o client.Object) []string { return targetsOf(o.(*corev1.Pod)) },
	}
}

// NodeIndexes returns the indexes of nodes by their names.
func NodeIndexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		indexLabels: func(o client.Object) []string { return pod.LabelKindsOf(o.GetLabels()) },
	}
}

// PVCNames returns the names of an instance's PVCs, for the index, with those that its VM
// is about to lose.
func PVCNames(o client.Object) []string {
	vmi := o.(*kubevirt.VirtualMachineInstance)
	var names []string
	for _, use := range pod.PVCs(&vmi.Spec) {
		names = append(names, use.Name)
	}
	for _, s := range vmi.Status.VolumeStatus {
		if info := s.PersistentVolumeClaimInfo; s.HotplugVolume != nil && info != nil && !slices.Contains(names, info.ClaimName) {
			names = append(names, info.ClaimName)
		}
	}
	return names
}

// SetUp lets the manager run the reconciler.
func (r *Reconciler) SetUp(ctx context.Context, m manager.Manager) error {
	for name, key := range NodeIndexes() {
		if err := index.Add(ctx, m, new(corev1.Node), name, key); err != nil {
			return err
		}
	}
	for name, key := range Indexes() {
		if err := index.Add(ctx, m, new(corev1.Pod), name, key); err != nil {
			return err
		}
	}
	if err := index.Add(ctx, m, new(kubevirt.VirtualMachineInstance), index.PVC, PVCNames); err != nil {
		return err
	}
	if _, err := m.GetCache().GetInformer(ctx, new(corev1.ResourceQuota)); err != nil { // for limits
		return fmt.Errorf("watch ResourceQuotas: %w", err)
	}
	all := ctrl.NewControllerManagedBy(m).
		For(new(kubevirt.VirtualMachineInstance)).
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(new(corev1.Pod), handler.EnqueueRequestsFromMapFunc(r.sharersOfPod)).
		Watches(new(corev1.PersistentVolumeClaim), index.Handler(r.client, new(kubevirt.VirtualMachineInstanceList), index.PVC, client.Object.GetName)).
		Watches(new(kubevirt.KubeVirt), handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(hookChanges())).
		Watches(new(corev1.Node), handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(r.nodeChanges()))
	return setup.Complete(all, "vmi", r, setup.Options{Workers: 16, Timeout: 30 * time.Second})
}

func ofPod(_ context.Context, o client.Object) []reconcile.Request {
	from, ours := originOf(o.(*corev1.Pod))
	if !ours {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: from.name}}}
}

// all returns all instances.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var vmis kubevirt.VirtualMachineInstanceList
	if err := r.client.List(ctx, &vmis, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var all []reconcile.Request
	for i := range vmis.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&vmis.Items[i])})
	}
	return all
}

// hookChanges passes those changes of the configuration that concern pods of running instances.
func hookChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			const key = config.AnnotationSkipBackupHooks
			return e.ObjectOld.GetAnnotations()[key] != e.ObjectNew.GetAnnotations()[key]
		},
	}
}

func (r *Reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	return On(ctx, r.client, o.GetName())
}

// On returns the instances with a pod on a node, from the cache. It ignores errors: the pods'
// own events follow.
func On(ctx context.Context, cache client.Client, node string) []reconcile.Request {
	var pods corev1.PodList
	if err := cache.List(ctx, &pods, client.MatchingFields{indexNode: node}, client.DisableReadYourWritesConsistency); err != nil {
		return nil
	}
	var all []reconcile.Request
	for i := range pods.Items {
		all = append(all, ofPod(ctx, &pods.Items[i])...)
	}
	return all
}

// sharersOfPod returns the instances that use a PVC of a pod, and may wait for it.
func (r *Reconciler) sharersOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	var all []reconcile.Request
	for _, name := range pvcsOf(o.(*corev1.Pod)) {
		all = append(all, index.Requests(ctx, r.client, new(kubevirt.VirtualMachineInstanceList), o.GetNamespace(), index.PVC, name)...)
	}
	return all
}

// nodeChanges passes events that change what is known about a node's guests.
func (r *Reconciler) nodeChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return readNode(e.ObjectOld.(*corev1.Node)) != readNode(e.ObjectNew.(*corev1.Node))
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			last, _ := e.Object.(*corev1.Node)
			if e.DeleteStateUnknown {
				last = nil
			}
			r.NodeDeleted(e.Object.GetName(), last)
			return true
		},
	}
}
