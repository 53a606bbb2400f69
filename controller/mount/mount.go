// Package mount has the kubelets of instances' nodes mount PVCs that are no volumes of the instances,
// for orders to the nodes: a PVC that a node writes a guest's memory or a backup to.
//
// It owns the pods that hold the PVCs. It leaves the PVCs, and the orders, to its callers.
package mount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Pods reads the pods of instances; package vmi's Pods.
type Pods interface {
	PodOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) (*corev1.Pod, error)
}

// Volume is a PVC that is mounted on an instance's node.
type Volume struct {
	VMI *kubevirt.VirtualMachineInstance
	// Name names the volume for the node.
	Name string
	PVC  *corev1.PersistentVolumeClaim
	// Label is the value of KubeVirt's label of the pod that holds the PVC.
	Label string
	// Owner owns the pod; nil for the instance's pod.
	Owner *metav1.OwnerReference
}

// Mounts has PVCs mounted.
type Mounts struct {
	// Live reads from the API server, and Uncached writes there what no cache has.
	Live     client.Reader
	Uncached client.Client
	Pods     Pods
	// Holder is the image of the pods that have PVCs mounted.
	Holder pod.Holder
}

// attachment returns the pod that has the kubelet of the guest's node mount the PVC; nil if the
// instance has no pod.
func (m Mounts) attachment(ctx context.Context, v Volume) (*corev1.Pod, error) {
	own, err := m.Pods.PodOf(ctx, v.VMI, pod.Current(v.VMI))
	if err != nil || own == nil {
		return nil, err
	}
	vmi, source := v.VMI.DeepCopy(), new(kubevirt.MemoryDumpVolumeSource)
	source.ClaimName = v.PVC.Name
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: v.Name, VolumeSource: kubevirt.VolumeSource{MemoryDump: source}})
	p, err := pod.Attachment(vmi, own, v.Name, pod.PVCObjects{v.PVC.Name: v.PVC}, m.Holder)
	if err != nil {
		return nil, err
	}
	p.Labels[kubevirt.AppLabel] = v.Label
	if v.Owner != nil {
		owner := *v.Owner
		owner.BlockOwnerDeletion = nil
		p.OwnerReferences = []metav1.OwnerReference{owner}
	}
	return p, nil
}

// Mount has the PVC mounted, and returns the ID of the container that has it. Without one, it
// returns what is wrong, if anything is.
func (m Mounts) Mount(ctx context.Context, v Volume) (container, why string, err error) {
	wanted, err := m.attachment(ctx, v)
	if err != nil || wanted == nil {
		return "", "the VM has no pod", err
	}
	p := new(corev1.Pod)
	err = m.Live.Get(ctx, client.ObjectKeyFromObject(wanted), p)
	switch {
	case apierrors.IsNotFound(err):
		if err := m.Uncached.Create(ctx, wanted); err != nil {
			return "", "", fmt.Errorf("create attachment pod %s: %w", wanted.Name, err)
		}
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("read attachment pod %s: %w", wanted.Name, err)
	case p.DeletionTimestamp != nil:
		return "", "attachment pod " + p.Name + " is being deleted", nil
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return "", "attachment pod " + p.Name + " has ended", m.remove(ctx, p)
	}
	if id := pod.HolderOf(p); id != "" {
		return id, "", nil
	}
	if c := pod.Unscheduled(p); c != nil {
		return "", "PVC " + v.PVC.Name + ": " + c.Message, nil
	}
	return "", "", nil
}

// Unmount deletes the pod that holds the volume of a name. One that stays goes with its owner.
func (m Mounts) Unmount(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) error {
	own, err := m.Pods.PodOf(ctx, vmi, pod.Current(vmi))
	if err != nil || own == nil {
		return err
	}
	return m.remove(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: pod.AttachmentName(own, name)}})
}

func (m Mounts) remove(ctx context.Context, p *corev1.Pod) error {
	if err := m.Uncached.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete attachment pod %s: %w", p.Name, err)
	}
	return nil
}
