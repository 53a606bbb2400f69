package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// finish removes from an instance the name of the node that it should leave, and reports that: the guest has left that
// node, or the drain was abandoned.
func (e *Evacuations) finish(ctx context.Context, vmi *instance, c config.Config) (over bool, err error) {
	from := vmi.Status.EvacuationNodeName
	if from == "" || vmi.Status.NodeName == "" || vmi.IsFinal() || instances.Migrating(vmi) {
		return false, nil
	}
	var why string
	if from != vmi.Status.NodeName {
		why = fmt.Sprintf("it is on node %s", vmi.Status.NodeName)
	} else if why, err = e.abandoned(ctx, vmi, c); err != nil {
		return false, err
	}
	if why == "" {
		return false, nil
	}
	before := vmi.DeepCopy()
	vmi.Status.EvacuationNodeName = ""
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := e.Client.Status().Patch(ctx, vmi, patch); err != nil {
		return true, client.IgnoreNotFound(fmt.Errorf("write status of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err))
	}
	e.Events.Eventf(vmi, nil, corev1.EventTypeNormal, "EvacuationEnded", "Evacuate", "The VMI need not leave node %s any more: %s", from, why)
	return true, nil
}

// abandoned returns why an instance need not leave its node any more: an attempt has failed, or none can begin, and pods are
// scheduled to the node again. Empty if it should leave: a descheduler evicts VMs from nodes that are not drained, too. It
// asks again.
func (e *Evacuations) abandoned(ctx context.Context, vmi *instance, c config.Config) (string, error) {
	if c.EvictionStrategy(vmi) == kubevirt.EvictionStrategyExternal { // the other controller knows
		return "", nil
	}
	node := new(corev1.Node)
	err := e.Client.Get(ctx, client.ObjectKey{Name: vmi.Status.NodeName}, node)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read node %s of VMI %s/%s: %w", vmi.Status.NodeName, vmi.Namespace, vmi.Name, err)
	}
	if cordoned(node) || drained(node, c) {
		return "", nil
	}
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := e.Client.List(ctx, &list, client.InNamespace(vmi.Namespace), client.MatchingFields{indexInstance: vmi.Name}); err != nil {
		return "", fmt.Errorf("list migrations of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	busy, wait := backlog(list.Items, e.Now())
	if busy || wait == 0 && eligible(vmi) {
		return "", nil
	}
	return "the node is schedulable again, and the VMI could not migrate", nil
}
