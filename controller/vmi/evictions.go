package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Evictions decides whether pods of instances may be evicted. It reads and writes at the
// API server: any replica decides.
type Evictions struct{ Live client.Client }

// Refuse returns why a pod must not be evicted; "" if it may be. The strategy External
// leaves an instance to another controller, which finds the node that it should leave in
// the instance's status, as with KubeVirt.
func (e Evictions) Refuse(ctx context.Context, key types.NamespacedName, dryRun bool) (string, error) {
	p := new(corev1.Pod)
	if err := e.Live.Get(ctx, key, p); err != nil {
		return "", ignoreGone(fmt.Errorf("read pod %s: %w", key, err))
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != kubevirt.VirtualMachineInstanceGroupVersionKind.Kind || (view{pod: p}).terminal() {
		return "", nil
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := e.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: owner.Name}, vmi); err != nil {
		return "", ignoreGone(fmt.Errorf("read VMI %s/%s: %w", key.Namespace, owner.Name, err))
	}
	if s := vmi.Spec.EvictionStrategy; vmi.UID != owner.UID || s == nil || *s != kubevirt.EvictionStrategyExternal {
		return "", nil
	}
	text := fmt.Sprintf("Eviction triggered evacuation of VMI \"%s/%s\"", vmi.Namespace, vmi.Name)
	if vmi.Status.EvacuationNodeName != "" {
		return "Evacuation in progress: " + text, nil
	}
	before := vmi.DeepCopy()
	vmi.Status.EvacuationNodeName = p.Spec.NodeName
	options := &client.SubResourcePatchOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := e.Live.Status().Patch(ctx, vmi, client.MergeFrom(before), options); err != nil {
		return "", fmt.Errorf("write status of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return text, nil
}
