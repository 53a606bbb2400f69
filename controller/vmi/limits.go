package vmi

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// defaultMemoryRatio is KubeVirt's, of a pod's memory limit to its request.
const defaultMemoryRatio = 2

// surroundings reads what the cluster says of an instance's resources and nodes.
func (r *Reconciler) surroundings(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.Surroundings, error) {
	var s pod.Surroundings
	if vmi.Spec.Domain.Resources.OvercommitGuestOverhead {
		class := new(nodev1.RuntimeClass)
		if err := r.Live.Get(ctx, client.ObjectKey{Name: r.Pods.RuntimeClass}, class); err != nil {
			return s, fmt.Errorf("read the overhead of RuntimeClass %s: %w", r.Pods.RuntimeClass, err)
		}
		if class.Overhead != nil {
			s.Overhead = class.Overhead.PodFixed.Memory().Value()
		}
	}
	kinds, err := r.labelKinds(ctx)
	if err != nil {
		return s, err
	}
	s.LabelKinds = kinds
	if s.NetworkResources, err = r.networkResources(ctx, vmi); err != nil {
		return s, err
	}
	limits := vmi.Spec.Domain.Resources.Limits
	_, cpu := limits[corev1.ResourceCPU]
	_, memory := limits[corev1.ResourceMemory]
	if cpu && memory {
		return s, nil
	}
	quotas := new(corev1.ResourceQuotaList)
	if err := r.Client.List(ctx, quotas, client.InNamespace(vmi.Namespace)); err != nil {
		return s, fmt.Errorf("list the ResourceQuotas of namespace %s: %w", vmi.Namespace, err)
	}
	limitsMemory := false
	for _, q := range quotas.Items {
		if _, is := q.Spec.Hard[corev1.ResourceLimitsCPU]; is && !cpu {
			s.LimitCPU = true
		}
		if _, is := q.Spec.Hard[corev1.ResourceLimitsMemory]; is && !memory {
			limitsMemory = true
		}
	}
	if !limitsMemory {
		return s, nil
	}
	namespace := new(corev1.Namespace)
	if err := r.Live.Get(ctx, client.ObjectKey{Name: vmi.Namespace}, namespace); err != nil {
		return s, fmt.Errorf("read the memory ratio of namespace %s: %w", vmi.Namespace, err)
	}
	s.MemoryRatio = memoryRatio(namespace.Labels[kubevirt.AutoMemoryLimitsRatioLabel])
	return s, nil
}

// labelKinds returns the kinds of labels by which nodes say what they can give VMs.
func (r *Reconciler) labelKinds(ctx context.Context) ([]string, error) {
	var all []string
	for _, kind := range pod.LabelKinds() {
		nodes := new(corev1.NodeList)
		err := r.Client.List(ctx, nodes, client.MatchingFields{indexLabels: kind}, client.Limit(1),
			client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("list nodes with labels %s: %w", kind, err)
		}
		if len(nodes.Items) > 0 {
			all = append(all, kind)
		}
	}
	return all, nil
}

// memoryRatio reads a namespace's label. As with KubeVirt, one that is no number of at least 1 counts as missing.
func memoryRatio(label string) float64 {
	ratio, err := strconv.ParseFloat(label, 64)
	if err != nil || !(ratio >= 1 && ratio <= maxMemoryRatio) {
		return defaultMemoryRatio
	}
	return ratio
}

// maxMemoryRatio keeps the limit in range.
const maxMemoryRatio = 1000
