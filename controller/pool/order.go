package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// order sorts VMs so that those come first that a policy selects first. The policy
// Random orders them by their UIDs, which are random: so a reconciliation that is
// repeated selects the same VMs.
func order(all []*member, policy *api.VirtualMachinePoolSelectionPolicy) {
	by := api.VirtualMachinePoolSortPolicyRandom
	if policy != nil && policy.SortPolicy != nil {
		by = *policy.SortPolicy
	}
	slices.SortFunc(all, func(a, b *member) int {
		age := a.vm.CreationTimestamp.Compare(b.vm.CreationTimestamp.Time)
		number := cmp.Compare(a.index, b.index)
		switch by {
		case api.VirtualMachinePoolSortPolicyOldest:
			return cmp.Or(age, number)
		case api.VirtualMachinePoolSortPolicyNewest:
			return -cmp.Or(age, number)
		case api.VirtualMachinePoolSortPolicyAscendingOrder:
			return number
		case api.VirtualMachinePoolSortPolicyDescendingOrder:
			return -number
		}
		return cmp.Compare(a.vm.UID, b.vm.UID)
	})
}

// selector selects VMs by their labels and their nodes.
type selector struct{ live client.Reader }

// selected returns the VMs that a policy's selectors select; all if it has none.
func (s *selector) selected(ctx context.Context, all []*member, policy *api.VirtualMachinePoolSelectionPolicy) ([]*member, error) {
	if policy == nil || policy.Selectors == nil {
		return all, nil
	}
	byLabels, byNode := labels.Everything(), labels.Everything()
	var err error
	if s := policy.Selectors.LabelSelector; s != nil {
		if byLabels, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, err
		}
	}
	onNode := policy.Selectors.NodeSelectorRequirementMatcher
	if onNode != nil {
		if byNode, err = nodeSelector(*onNode); err != nil {
			return nil, err
		}
	}
	nodes := map[string]labels.Set{}
	var chosen []*member
	for _, m := range all {
		if !byLabels.Matches(m.labels()) {
			continue
		}
		if onNode != nil {
			of, err := s.nodeLabels(ctx, m, nodes)
			if err != nil {
				return nil, err
			}
			if of == nil || !byNode.Matches(of) {
				continue
			}
		}
		chosen = append(chosen, m)
	}
	return chosen, nil
}

// labels returns the VM's labels and those of its instances.
func (m *member) labels() labels.Set {
	var of map[string]string
	if t := m.vm.Spec.Template; t != nil {
		of = t.ObjectMeta.Labels
	}
	return labels.Merge(of, m.vm.Labels)
}

// nodeLabels returns the labels of the node that runs a VM; nil if there is none. The
// cache has nodes without them.
func (s *selector) nodeLabels(ctx context.Context, m *member, known map[string]labels.Set) (labels.Set, error) {
	if m.vmi == nil || m.vmi.Status.NodeName == "" {
		return nil, nil
	}
	name := m.vmi.Status.NodeName
	if of, ok := known[name]; ok {
		return of, nil
	}
	node := new(corev1.Node)
	if err := s.live.Get(ctx, client.ObjectKey{Name: name}, node); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	known[name] = node.Labels
	return node.Labels, nil
}

// nodeSelector returns the selector of the labels that all requirements select.
func nodeSelector(all []corev1.NodeSelectorRequirement) (labels.Selector, error) {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	selector := labels.NewSelector()
	for _, one := range all {
		requirement, err := labels.NewRequirement(one.Key, operators[one.Operator], one.Values)
		if err != nil {
			return nil, err
		}
		selector = selector.Add(*requirement)
	}
	return selector, nil
}
