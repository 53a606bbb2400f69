package vmi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// Consumers has Kubernetes bind PVCs of classes that wait for a pod, by pods that do nothing with them.
type Consumers struct {
	client       client.Client
	live         client.Reader
	runtimeClass string
	holder       pod.Holder
	cluster      reader
}

// ensure has all PVCs of an instance bound once they exist: apart from each other they could be bound where no one
// node reaches them. It returns why they are not, with a space before it, if that is known.
func (c *Consumers) ensure(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) (string, error) {
	var all []*corev1.PersistentVolumeClaim
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := pvcs[use.Name]
		if pvc == nil {
			return "", nil
		}
		all = append(all, pvc)
	}
	return c.Bind(ctx, vmi, pod.ConsumerOwner(vmi), all)
}

// Bind has PVCs bound where an instance can run, by a pod that goes with an owner. The instance need not exist. It returns
// why they are not bound yet, with a space before it, if that is known.
func (c *Consumers) Bind(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, owner metav1.OwnerReference, pvcs []*corev1.PersistentVolumeClaim,
) (string, error) {
	around, err := c.cluster.read(ctx, vmi)
	if err != nil {
		return "", err
	}
	class := new(nodev1.RuntimeClass)
	if err := c.live.Get(ctx, client.ObjectKey{Name: c.runtimeClass}, class); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read RuntimeClass %s: %w", c.runtimeClass, err)
	}
	wanted, err := pod.Consumer(vmi, owner, pvcs, class.Scheduling, around, c.holder)
	if err != nil {
		return " " + err.Error(), nil //nolint:nilerr // a retry would fail in the same way
	}
	p := new(corev1.Pod)
	switch err := c.client.Get(ctx, client.ObjectKeyFromObject(wanted), p); {
	case apierrors.IsNotFound(err):
		if err := c.client.Create(ctx, wanted); err != nil {
			return "", fmt.Errorf("create pod %s, which has PVCs bound: %w", wanted.Name, err)
		}
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read pod %s, which has PVCs bound: %w", wanted.Name, err)
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded { // another takes its place
		return "", c.delete(ctx, p)
	}
	if why := pod.Unscheduled(p); why != nil {
		return " Pod " + p.Name + ": " + why.Message, nil
	}
	return "", nil
}

// late reports whether a PVC is bound only when a pod uses it, and is not bound yet.
func (c *Consumers) late(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	name := pvc.Spec.StorageClassName
	if name == nil || *name == "" || pvc.Spec.VolumeName != "" {
		return false, nil
	}
	class := new(storagev1.StorageClass)
	if err := c.live.Get(ctx, client.ObjectKey{Name: *name}, class); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("read StorageClass %s of PVC %s/%s: %w", *name, pvc.Namespace, pvc.Name, err))
	}
	mode := class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

// Release deletes the pods of an owner that have a PVC, and reports whether there are none.
func (c *Consumers) Release(ctx context.Context, owner types.UID, pvc client.ObjectKey) (bool, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(pvc.Namespace), client.MatchingFields{index.PVC: pvc.Name}); err != nil {
		return false, fmt.Errorf("list pods with PVC %s: %w", pvc, err)
	}
	none := true
	for i := range pods.Items {
		p := &pods.Items[i]
		if !pod.IsConsumer(p, owner) {
			continue
		}
		none = false
		if p.DeletionTimestamp != nil {
			continue
		}
		if err := c.delete(ctx, p); err != nil {
			return false, err
		}
	}
	return none, nil
}

// remove deletes the pods that have had a PVC of an instance bound, once all their PVCs are.
func (c *Consumers) remove(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, claim string, pvcs pod.PVCObjects) error {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{index.PVC: claim}); err != nil {
		return fmt.Errorf("list pods with PVC %s/%s: %w", vmi.Namespace, claim, err)
	}
	unbound := func(name string) bool { return pvcs[name] != nil && pvcs[name].Spec.VolumeName == "" }
	for i := range pods.Items {
		p := &pods.Items[i]
		if !pod.IsConsumer(p, vmi.UID) || p.DeletionTimestamp != nil || slices.ContainsFunc(pvcsOf(p), unbound) {
			continue
		}
		if err := c.delete(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Consumers) delete(ctx context.Context, p *corev1.Pod) error {
	if err := c.client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete pod %s, which had PVCs bound: %w", p.Name, err)
	}
	return nil
}
