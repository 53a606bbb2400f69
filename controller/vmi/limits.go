package vmi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// defaultMemoryRatio is KubeVirt's, of a pod's memory limit to its request.
const defaultMemoryRatio = 2

// surroundings reads what a pod depends on in its cluster.
type surroundings struct {
	client       client.Client
	live         client.Reader
	config       config.Source
	runtimeClass string
	now          func() time.Time
	kinds        labelKinds
}

// labelKinds are the kinds of nodes' labels, for a moment: to look for one takes the longer the
// more nodes have it.
type labelKinds struct {
	mu    sync.Mutex
	known []string
	until time.Time
}

// labelKindsAge is how long the kinds of nodes' labels are kept. A pod that is created within that
// time after the first node with labels of a kind does not require them, as one created before.
const labelKindsAge = time.Second

// read reads what the cluster says of an instance's resources and nodes.
func (c *surroundings) read(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.Surroundings, error) {
	var s pod.Surroundings
	var err error
	if s.Config, err = c.config.Read(ctx); err != nil {
		return s, err
	}
	if vmi.Spec.Domain.Resources.OvercommitGuestOverhead {
		class := new(nodev1.RuntimeClass)
		if err := c.live.Get(ctx, client.ObjectKey{Name: c.runtimeClass}, class); err != nil {
			return s, fmt.Errorf("read the overhead of RuntimeClass %s: %w", c.runtimeClass, err)
		}
		if class.Overhead != nil {
			s.Overhead = class.Overhead.PodFixed.Memory().Value()
		}
	}
	if s.LabelKinds, err = c.knownLabelKinds(ctx); err != nil {
		return s, err
	}
	if s.NetworkResources, err = c.networkResources(ctx, vmi); err != nil {
		return s, err
	}
	limits := vmi.Spec.Domain.Resources.Limits
	_, cpu := limits[corev1.ResourceCPU]
	_, memory := limits[corev1.ResourceMemory]
	if cpu && memory {
		return s, nil
	}
	quotas := new(corev1.ResourceQuotaList)
	if err := c.client.List(ctx, quotas, client.InNamespace(vmi.Namespace)); err != nil {
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
	limited := s.Config.LimitsCPU()
	if !limitsMemory && (limited == nil || cpu) {
		return s, nil
	}
	namespace := new(corev1.Namespace)
	if err := c.live.Get(ctx, client.ObjectKey{Name: vmi.Namespace}, namespace); err != nil {
		return s, fmt.Errorf("read the labels of namespace %s: %w", vmi.Namespace, err)
	}
	if limited != nil && !cpu && limited.Matches(labels.Set(namespace.Labels)) {
		s.LimitCPU = true
	}
	if limitsMemory {
		s.MemoryRatio = memoryRatio(namespace.Labels[kubevirt.AutoMemoryLimitsRatioLabel])
	}
	return s, nil
}

// knownLabelKinds is [surroundings.labelKinds] as of less than a moment ago.
func (c *surroundings) knownLabelKinds(ctx context.Context) ([]string, error) {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	now := c.now()
	if left := c.kinds.until.Sub(now); left > 0 && left <= labelKindsAge { // the clock may have been set back
		return c.kinds.known, nil
	}
	known, err := c.labelKinds(ctx)
	if err == nil {
		c.kinds.known, c.kinds.until = known, now.Add(labelKindsAge)
	}
	return known, err
}

// labelKinds returns the kinds of labels by which nodes say what they can give VMs.
func (c *surroundings) labelKinds(ctx context.Context) ([]string, error) {
	var all []string
	for _, kind := range pod.LabelKinds() {
		nodes := new(corev1.NodeList)
		err := c.client.List(ctx, nodes, client.MatchingFields{indexLabels: kind}, client.Limit(1),
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

// sourceLabels returns the labels of the node of an instance's guest, if the guest has that node's CPU.
func (c *surroundings) sourceLabels(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (map[string]string, error) {
	if cpu := vmi.Spec.Domain.CPU; cpu == nil || cpu.Model != kubevirt.CPUModeHostModel {
		return nil, nil
	}
	n := new(corev1.Node)
	if err := c.live.Get(ctx, client.ObjectKey{Name: vmi.Status.NodeName}, n); err != nil {
		return nil, fmt.Errorf("read the CPU of node %s: %w", vmi.Status.NodeName, err)
	}
	return n.Labels, nil
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
