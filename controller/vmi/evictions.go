package vmi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// Evictions decides whether pods of instances may be evicted. It reads and writes at the
// API server: any replica decides.
type Evictions struct {
	Live client.Client
	// Config is the cluster's configuration; it must not be behind.
	Config config.Source
}

// Refuse returns why a pod must not be evicted; "" if it may be. An instance that should
// leave its node has the node's name in its status, as with KubeVirt: a migration follows,
// or another controller acts if the strategy is External. An attachment pod stays as long as its VM's pod.
func (e Evictions) Refuse(ctx context.Context, key types.NamespacedName, dryRun bool) (string, error) {
	p := new(corev1.Pod)
	if err := e.Live.Get(ctx, key, p); err != nil {
		return "", ignoreGone(fmt.Errorf("read pod %s: %w", key, err))
	}
	if _, own, is := pod.AttachedTo(p); is { // the VM uses its volume
		of := metav1.GetControllerOf(p)
		if of == nil {
			return "", nil
		}
		p = new(corev1.Pod)
		if err := e.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: of.Name}, p); err != nil || p.UID != own {
			return "", ignoreGone(err)
		}
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != kubevirt.VirtualMachineInstanceGroupVersionKind.Kind || (view{pod: p}).terminal() {
		return "", nil
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := e.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: owner.Name}, vmi); err != nil {
		return "", ignoreGone(fmt.Errorf("read VMI %s/%s: %w", key.Namespace, owner.Name, err))
	}
	if vmi.UID != owner.UID {
		return "", nil
	}
	c, err := e.Config.Read(ctx)
	if err != nil {
		return "", err
	}
	stays, refusal := evacuated(vmi, c.EvictionStrategy(vmi))
	if !stays || refusal != "" {
		return refusal, nil
	}
	text := fmt.Sprintf("Eviction triggered evacuation of VMI \"%s/%s\"", vmi.Namespace, vmi.Name)
	switch {
	case vmi.Status.EvacuationNodeName != "":
		return "Evacuation in progress: " + text, nil
	case Migrating(vmi) && p.Name != pod.Current(vmi):
		return "Eviction request for target Pod", nil
	case p.Name != pod.Current(vmi):
		return "", nil // the source of a migration that has ended
	}
	return text, e.mark(ctx, vmi, p.Spec.NodeName, dryRun)
}

// evacuated reports whether an eviction leaves the instance's pod and has the instance
// leave its node. A refusal says why it can do neither.
func evacuated(vmi *kubevirt.VirtualMachineInstance, strategy kubevirt.EvictionStrategy) (evacuate bool, refusal string) {
	able, c := IsMigratable(vmi)
	switch strategy {
	case kubevirt.EvictionStrategyExternal:
		return true, ""
	case kubevirt.EvictionStrategyLiveMigrateIfPossible:
		return able, ""
	case kubevirt.EvictionStrategyLiveMigrate:
		if !able {
			refusal = fmt.Sprintf("VMI %s is configured with an eviction strategy but is not live-migratable", vmi.Name)
			if c != nil && c.Message != "" {
				refusal += ": " + c.Message
			}
			return false, refusal
		}
		return true, ""
	}
	return false, ""
}

// mark writes which node the instance should leave.
func (e Evictions) mark(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, node string, dryRun bool) error {
	before := vmi.DeepCopy()
	vmi.Status.EvacuationNodeName = node
	options := &client.SubResourcePatchOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if err := e.Live.Status().Patch(ctx, vmi, client.MergeFrom(before), options); err != nil {
		return fmt.Errorf("write status of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return nil
}
