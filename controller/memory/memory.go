// Package memory has nodes save the memory of instances' guests to PVCs.
//
// It owns the PVC, the pod that has the kubelet mount it on the guest's node, and the orders to the
// node. When a guest is saved, and what happens to it then, is its callers': packages snapshot and vm.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/mount"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// AnnotationClass is the storage class of the PVC for the memory; the cluster's default without it.
	AnnotationClass = "nodevirt.io/memory-storage-class"
	// AnnotationSize is the PVC's size.
	AnnotationSize = "nodevirt.io/memory-size"

	// Poll is the time between two orders to a guest that is saved.
	Poll = time.Second
	// Slack is what the archive has, in bytes, beside the guest's memory and empty disks: the
	// states of devices, and what the guest wrote to its registry disks.
	Slack = 1 << 30

	// Label is on the pod that holds the PVC, which is no volume of the instance's.
	Label = "memory-snapshot"
	// orderTime bounds one order to a node.
	orderTime = 15 * time.Second
	// maxAnswer bounds a node's answer, and maxReason foreign text in a status, in bytes.
	maxAnswer = 4 << 10
	maxReason = 1024
)

// CheckSize returns what is wrong with the annotation that has the PVC's size.
func CheckSize(annotations map[string]string) *field.Error {
	v, ok := annotations[AnnotationSize]
	if !ok {
		return nil
	}
	if q, err := resource.ParseQuantity(v); err != nil || q.Sign() <= 0 {
		return fields.Invalid(field.NewPath("metadata", "annotations").Key(AnnotationSize), v, "must be a size such as 4Gi")
	}
	return nil
}

// Nodes gives an order to the VM in a pod; package control's Client.
type Nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

// Save is the saving of one guest.
type Save struct {
	VMI *kubevirt.VirtualMachineInstance
	// Volume names the save, PVC is the name of its PVC.
	Volume, PVC string
	// Labels and Owner are the PVC's.
	Labels map[string]string
	Owner  metav1.OwnerReference
	// HolderOwner owns the pod that holds the PVC; nil for the VM's pod.
	HolderOwner *metav1.OwnerReference
	// Annotations are the user's, with the PVC's class and size.
	Annotations map[string]string
}

// size returns the size of the PVC: what the user requests, or else what the guest's memory and its
// empty disks can need.
func (s *Save) size() resource.Quantity {
	if q, err := resource.ParseQuantity(s.Annotations[AnnotationSize]); err == nil && q.Sign() > 0 {
		return q
	}
	spec, _ := vmspec.Preview(field.NewPath("spec"), &s.VMI.Spec)
	of := s.VMI.Spec.Domain.Resources
	size := max(spec.Memory, spec.MaxMemory, of.Requests.Memory().Value(), of.Limits.Memory().Value()) + Slack
	for _, d := range spec.Disks {
		if d.Source == vmspec.SourceEmpty {
			size += d.Size
		}
	}
	return *resource.NewQuantity(size, resource.BinarySI)
}

// Saves has guests saved.
type Saves struct {
	// Live reads from the API server, and Uncached writes there what no cache has.
	Live     client.Reader
	Uncached client.Client
	Pods     mount.Pods
	Nodes    Nodes
	// Holder is the image of the pods that have PVCs mounted.
	Holder pod.Holder
}

// pvc returns the PVC for the memory.
func (m *Saves) pvc(ctx context.Context, s *Save) (*corev1.PersistentVolumeClaim, error) {
	key := client.ObjectKey{Namespace: s.VMI.Namespace, Name: s.PVC}
	pvc := new(corev1.PersistentVolumeClaim)
	err := m.Live.Get(ctx, key, pvc)
	if err == nil || !apierrors.IsNotFound(err) {
		return pvc, client.IgnoreNotFound(err)
	}
	mode := corev1.PersistentVolumeFilesystem
	pvc = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: maps.Clone(s.Labels), OwnerReferences: []metav1.OwnerReference{s.Owner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: s.size()}},
		},
	}
	if class := s.Annotations[AnnotationClass]; class != "" {
		pvc.Spec.StorageClassName = &class
	}
	if err := m.Uncached.Create(ctx, pvc); err != nil {
		return nil, fmt.Errorf("create PVC %s: %w", key, err)
	}
	return pvc, nil
}

// mounts has the PVC mounted.
func (m *Saves) mounts() mount.Mounts {
	return mount.Mounts{Live: m.Live, Uncached: m.Uncached, Pods: m.Pods, Holder: m.Holder}
}

// Mount has the PVC mounted, and returns the ID of the container that has it. Without one, it
// returns what is wrong, if anything is.
func (m *Saves) Mount(ctx context.Context, s *Save) (container, why string, err error) {
	pvc, err := m.pvc(ctx, s)
	if err != nil {
		return "", "", err
	}
	container, why, err = m.mounts().Mount(ctx, mount.Volume{VMI: s.VMI, Name: s.Volume, PVC: pvc, Label: Label, Owner: s.HolderOwner})
	return container, clip(why), err
}

// Unmount deletes the attachment pod of a save that has ended. One that stays goes with its owner.
func (m *Saves) Unmount(ctx context.Context, s *Save) error {
	return m.mounts().Unmount(ctx, s.VMI, s.Volume)
}

// Release deletes the pods that have a save's PVC, whichever of the VM's pods they are for: the PVC can't be mounted on another
// node before. On a node that is lost, Kubernetes ends what is deleted once the node is declared so.
func (m *Saves) Release(ctx context.Context, namespace, pvc string) error {
	err := pages.Each(ctx, m.Live, namespace, func() *corev1.PodList { return new(corev1.PodList) }, func(page *corev1.PodList) (bool, error) {
		for i := range page.Items {
			p := &page.Items[i]
			if pod.Held(p).PVC != pvc || p.DeletionTimestamp != nil {
				continue
			}
			if err := m.Uncached.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil {
				return true, fmt.Errorf("delete attachment pod %s/%s: %w", namespace, p.Name, err)
			}
		}
		return false, nil
	}, client.MatchingLabels{kubevirt.AppLabel: Label})
	if err != nil {
		return fmt.Errorf("release PVC %s/%s: %w", namespace, pvc, err)
	}
	return nil
}

// Order begins a save, or holds the guest, as an order says. It names the save's volume.
func (m *Saves) Order(ctx context.Context, s *Save, a order.Save) (order.Saved, error) {
	a.Volume = s.Volume
	return m.give(ctx, s, order.MemorySave, a)
}

// End lets the guest go on.
func (m *Saves) End(ctx context.Context, s *Save) (order.Saved, error) {
	return m.give(ctx, s, order.MemorySaveEnd, order.Name{Name: s.Volume})
}

// give gives an order about the save, and returns the node's answer.
func (m *Saves) give(ctx context.Context, s *Save, control string, argument any) (order.Saved, error) {
	var saved order.Saved
	text, err := json.Marshal(argument)
	if err != nil {
		return saved, err
	}
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	p, err := m.Pods.PodOf(ctx, s.VMI, pod.Current(s.VMI))
	if err == nil && p == nil {
		err = errors.New("the pod is gone")
	}
	if err != nil {
		return saved, fmt.Errorf("%s: %w", control, err)
	}
	answer, err := m.Nodes.Control(ctx, p, maxAnswer, control, string(text))
	if err != nil {
		return saved, fmt.Errorf("%s in pod %s on node %s: %s", control, p.Name, p.Spec.NodeName, clip(err.Error()))
	}
	if json.Unmarshal(answer, &saved) != nil || saved.Volume != s.Volume {
		err = fmt.Errorf("%s: the node's answer is not about the save", control)
	}
	return saved, err
}

// clip bounds foreign text.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
