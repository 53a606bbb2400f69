package vmi

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Migrating reports whether a migration of the instance has begun and not ended: its
// guest may be on either of two nodes.
func Migrating(vmi *kubevirt.VirtualMachineInstance) bool {
	m := vmi.Status.MigrationState
	return m != nil && m.MigrationUID != "" && m.EndTimestamp == nil
}

// keeps reports whether a pod of the instance is the one with its guest, or the target of
// a migration that has not ended.
func keeps(vmi *kubevirt.VirtualMachineInstance, name string) bool {
	return name == pod.Current(vmi) || Migrating(vmi) && name == vmi.Status.MigrationState.TargetPod
}

// farewell is how long the source of a migration that has succeeded has to end by itself.
const farewell = time.Minute

// endOthers ends the instance's pods without its guest: the source of a migration that
// has succeeded, and the target of one that has failed. With a deleted or ended instance
// all of them end. It returns when to look again; 0 for when a pod changes.
func (r *Reconciler) endOthers(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (time.Duration, error) {
	if vmi.Status.MigrationState == nil {
		return 0, nil
	}
	pods, err := r.others(ctx, vmi)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	for i := range pods {
		wait, err := r.endOther(ctx, vmi, &pods[i])
		if err != nil {
			return 0, err
		}
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	return again, nil
}

func (r *Reconciler) endOther(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (time.Duration, error) {
	v, err := r.look(ctx, p)
	if err != nil {
		return 0, err
	}
	over := vmi.DeletionTimestamp != nil || vmi.IsFinal()
	if p.DeletionTimestamp == nil && (over || !keeps(vmi, p.Name)) {
		m := vmi.Status.MigrationState
		if !over && !v.ended() && p.Name == m.SourcePod && m.EndTimestamp != nil {
			if left := farewell - r.Now().Sub(m.EndTimestamp.Time).Abs(); left > 0 {
				return left, nil
			}
		}
		current := new(kubevirt.VirtualMachineInstance)
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(vmi), current)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("read VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
		if err == nil && current.UID == vmi.UID && !over && keeps(current, p.Name) {
			return 0, nil // the cache is behind
		}
		if err := r.deletePod(ctx, p); err != nil {
			return 0, err
		}
		return 0, nil // the pod's event triggers the next step
	}
	if over || !keeps(vmi, p.Name) {
		return 0, r.release(ctx, v)
	}
	return 0, nil
}

// others returns the instance's pods beside that with its guest.
func (r *Reconciler) others(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{indexInstance: vmi.Name}); err != nil {
		return nil, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	var all []corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if from, _ := originOf(p); from.uid == vmi.UID && p.Name != pod.Current(vmi) {
			all = append(all, *p)
		}
	}
	return all, nil
}

// othersExist reports whether the API server still has one of those pods. The cache may
// have lost the label of one.
func (r *Reconciler) othersExist(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (bool, error) {
	if vmi.Status.MigrationState == nil {
		return false, nil
	}
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{kubevirt.CreatedByLabel: string(vmi.UID)})
	if err != nil {
		return false, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return len(pods.Items) > 0, nil
}

// Manifest returns the pod that the instance would get now, for the target of a migration.
func (r *Reconciler) Manifest(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	starting := pod.AtStart(vmi)
	objects, err := r.pvcObjects(ctx, starting)
	if err != nil {
		return nil, err
	}
	network, t, err := r.networkDisks(ctx, starting, objects)
	if err != nil {
		return nil, err
	}
	if t != nil {
		return nil, errors.New(t.message)
	}
	options := r.Pods
	if options.Surroundings, err = r.surroundings(ctx, vmi); err != nil {
		return nil, err
	}
	if options.Surroundings.Source, err = r.sourceLabels(ctx, vmi); err != nil {
		return nil, err
	}
	return pod.New(vmi, objects, network, options)
}

// sourceLabels returns the labels of the node of an instance's guest, if the guest has that node's CPU.
func (r *Reconciler) sourceLabels(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (map[string]string, error) {
	if cpu := vmi.Spec.Domain.CPU; cpu == nil || cpu.Model != kubevirt.CPUModeHostModel {
		return nil, nil
	}
	n := new(corev1.Node)
	if err := r.Live.Get(ctx, client.ObjectKey{Name: vmi.Status.NodeName}, n); err != nil {
		return nil, fmt.Errorf("read the CPU of node %s: %w", vmi.Status.NodeName, err)
	}
	return n.Labels, nil
}

// State is what the cluster reports of a pod's VM.
type State struct {
	// Running: the kubelet reports the VM's container as running.
	Running bool
	// Ended: the VM does not run and never will again.
	Ended bool
	// Vacant: the pod's node is gone or out of service, and no kubelet can confirm it.
	Vacant bool
	// Lost: the node's kubelet does not report.
	Lost bool
	// Migrated: the VM's container ended because its guest went to another node.
	Migrated bool
}

// reasonMigrated is the reason with which a node ends the container of a guest that has
// gone to another node.
const reasonMigrated = "Migrated"

// StateOf returns the state of an instance's pod; nil is a pod that is gone.
func (r *Reconciler) StateOf(ctx context.Context, p *corev1.Pod) (State, error) {
	if p == nil {
		return State{Ended: true}, nil
	}
	v, err := r.look(ctx, p)
	if err != nil {
		return State{}, err
	}
	c := v.compute()
	return State{
		Running: v.running(), Ended: v.ended(), Vacant: v.node.vacant(), Lost: v.node.lost,
		Migrated: c != nil && c.Terminated != nil && c.Terminated.Reason == reasonMigrated,
	}, nil
}

// PodOf returns an instance's pod of a name in the cache; nil if there is none.
func (r *Reconciler) PodOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	return namedPod(ctx, r.Client, vmi, name)
}
