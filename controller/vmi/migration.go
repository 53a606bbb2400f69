package vmi

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// Migrating reports whether a migration of the instance has begun and not ended: its
// guest may be on either of two nodes.
func Migrating(vmi *kubevirt.VirtualMachineInstance) bool {
	m := vmi.Status.MigrationState
	return m != nil && m.MigrationUID != "" && m.EndTimestamp == nil
}

// Pods makes and reads the pods of instances for other kinds: migrations and snapshots.
type Pods struct {
	networks *definitions
	client   client.Client
	options  pod.Options
	views    viewer
	pvcs     finder
	states   *states
	disks    diskFinder
	cluster  interface {
		read(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (pod.Surroundings, error)
		sourceLabels(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (map[string]string, error)
	}
}

// MoveState returns the name of the PVC for an instance's persistent state on the target of its migration, which it
// makes unless both nodes can mount the source's; "" for an instance without.
func (m *Pods) MoveState(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (string, error) {
	if !pod.KeepsState(vmi) {
		return "", nil
	}
	source, err := m.PodOf(ctx, vmi, pod.Current(vmi))
	if err != nil {
		return "", err
	}
	return m.states.moved(ctx, vmi, source)
}

// Manifest returns the pod that the instance would get now, for the target of a migration, with a PVC for persistent
// state, if any.
func (m *Pods) Manifest(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, state string) (*corev1.Pod, error) {
	starting := pod.AtStart(vmi)
	objects, err := m.pvcs.pvcObjects(ctx, starting)
	if err != nil {
		return nil, err
	}
	network, t, err := m.disks.find(ctx, starting, objects)
	if err != nil {
		return nil, err
	}
	if t != nil {
		return nil, errors.New(t.message)
	}
	options := m.options
	if options.Surroundings, err = m.cluster.read(ctx, vmi); err != nil {
		return nil, err
	}
	if options.Surroundings.Source, err = m.cluster.sourceLabels(ctx, vmi); err != nil {
		return nil, err
	}
	if machine := vmi.Status.Machine; machine != nil {
		options.Surroundings.Machine = machine.Type
	}
	options.Surroundings.StatePVC = state
	return pod.New(vmi, objects, network, options)
}

// SettleState has an instance's persistent state be where its guest is after a migration.
func (m *Pods) SettleState(ctx context.Context, vmi client.ObjectKey, migration types.UID, moved bool) error {
	return m.states.settle(ctx, vmi, migration, moved)
}

// UserOf returns who else uses the PVCs to which the instance's disks are about to be copied, which deletes what they
// hold; "" if they are unused.
func (m *Pods) UserOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (string, error) {
	for _, moved := range vmi.Status.MigratedVolumes {
		if moved.DestinationPVCInfo == nil {
			continue
		}
		// Whatever its access mode is.
		t, err := m.pvcs.inUse(ctx, vmi, pod.PVC{Volume: moved.VolumeName, Name: moved.DestinationPVCInfo.ClaimName}, new(corev1.PersistentVolumeClaim))
		if err != nil || t != nil {
			return cmp.Or(t, new(trouble)).message, err
		}
	}
	return "", nil
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
	// Refused: the VM's container ended because the guest that it waited for did not come, and never will.
	Refused bool
	// Had: the VM's container ended with its guest.
	Had bool
}

// note sets what a node's reason for the end of the VM's container says. A reason of the kubelet's, which
// may have lost the container, says nothing.
func (s *State) note(ended *corev1.ContainerStateTerminated) {
	if ended == nil {
		return
	}
	switch ended.Reason {
	case condition.ReasonMigrated:
		s.Migrated = true
	case condition.ReasonMigrationRefused:
		s.Refused = true
	case condition.ReasonCompleted, condition.ReasonSuspended, condition.ReasonError, condition.ReasonGuestPanicked, condition.ReasonOOMKilled,
		condition.ReasonNodeShutdown:
		s.Had = true
	}
}

// ReasonSuspended is the reason of an instance whose guest's memory is on a PVC, and whose container
// ended with it.
const ReasonSuspended = condition.ReasonSuspended

// StateOf returns the state of an instance's pod; nil is a pod that is gone.
func (m *Pods) StateOf(ctx context.Context, p *corev1.Pod) (State, error) {
	if p == nil {
		return State{Ended: true}, nil
	}
	v, err := m.views.look(ctx, p)
	if err != nil {
		return State{}, err
	}
	s := State{Running: v.running(), Ended: v.ended(), Vacant: v.node.vacant(), Lost: v.node.lost}
	if c := v.compute(); c != nil {
		s.note(c.Terminated)
	}
	return s, nil
}

// PodOf returns an instance's pod of a name in the cache; nil if there is none.
func (m *Pods) PodOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) (*corev1.Pod, error) {
	return namedPod(ctx, m.client, vmi, name)
}
