package vmi

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	kinds        moment[[]string]
	overhead     moment[*int64]
}

// moment is a value that is read again once it is as old as momentAge: to read it for each pod would take the longer the
// more nodes there are.
type moment[T any] struct {
	mu    sync.Mutex
	known T
	until time.Time
}

// read returns the value as of less than a moment ago.
func (m *moment[T]) read(now time.Time, read func() (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left := m.until.Sub(now); left > 0 && left <= momentAge { // the clock may have been set back
		return m.known, nil
	}
	known, err := read()
	if err == nil {
		m.known, m.until = known, now.Add(momentAge)
	}
	return known, err
}

// momentAge is how long the kinds of nodes' labels are kept. A pod that is created within that
// time after the first node with labels of a kind does not require them, as one created before.
const momentAge = time.Second

// read reads what the cluster says of an instance's resources and nodes.
func (c *surroundings) read(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.Surroundings, error) {
	var s pod.Surroundings
	var err error
	if s.Config, err = c.config.Read(ctx); err != nil {
		return s, err
	}
	if s.Overhead, err = c.overhead.read(c.now(), func() (*int64, error) { return c.classOverhead(ctx) }); err != nil {
		return s, err
	}
	if s.LabelKinds, err = c.kinds.read(c.now(), func() ([]string, error) { return c.labelKinds(ctx) }); err != nil {
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

// classOverhead returns the memory in bytes that the RuntimeClass adds to each pod; nil without such a class, whose name the
// API server refuses in pods.
func (c *surroundings) classOverhead(ctx context.Context) (*int64, error) {
	class := new(nodev1.RuntimeClass)
	switch err := c.live.Get(ctx, client.ObjectKey{Name: c.runtimeClass}, class); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the overhead of RuntimeClass %s: %w", c.runtimeClass, err)
	case class.Overhead == nil:
		return new(int64), nil
	}
	return new(class.Overhead.PodFixed.Memory().Value()), nil
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
