package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/controller/memory"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/fields"
	podcondition "github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// A VirtualMachine that its user suspends, by [pod.AnnotationSuspend]:
//
//	Running ──▶ Suspending ──▶ the container ends as Suspended ──▶ Suspended ──▶ start: Starting, Running
//	   ▲            │           (the node's decision, in the       (halted, the next
//	   └────────────┘            pod's status)                      instance resumes)
//	     the save failed
//
// The memory is on a PVC for each instance, which goes when the next instance runs.

const (
	statusSuspending kubevirt.VirtualMachinePrintableStatus = "Suspending"
	statusSuspended  kubevirt.VirtualMachinePrintableStatus = "Suspended"

	// reasonSuspend is the reason of the condition of a guest that cannot be suspended now.
	reasonSuspend = "SuspendError"
	// suspendPrefix begins the names of PVCs with the memory of suspended guests.
	suspendPrefix = "suspend-"
	// suspendVolume names the save on the node.
	suspendVolume = "suspend"
	// suspendRetry is the time between two looks at what keeps a guest from being suspended.
	suspendRetry = 5 * time.Second
	maxPVCName   = 63
)

// suspendError says why a guest is not suspended yet.
type suspendError struct{ error }

func (e suspendError) Unwrap() error { return e.error }

// checkSuspend returns what is wrong with the annotations of a VirtualMachine.
func checkSuspend(annotations map[string]string) field.ErrorList {
	var problems field.ErrorList
	if v, ok := annotations[pod.AnnotationSuspend]; ok && v != "true" && v != "false" {
		problems = append(problems, fields.Invalid(field.NewPath("metadata", "annotations").Key(pod.AnnotationSuspend), v, "must be true or false"))
	}
	if p := memory.CheckSize(annotations); p != nil {
		problems = append(problems, p)
	}
	return problems
}

func wantsSuspend(vm *kubevirt.VirtualMachine) bool {
	return vm.Annotations[pod.AnnotationSuspend] == "true"
}

// suspended reports whether the next instance goes on where the suspended guest was.
func suspended(vm *kubevirt.VirtualMachine) bool {
	return wantsSuspend(vm) && vm.Annotations[pod.AnnotationResume] != ""
}

// suspends suspends guests.
type suspends struct {
	client client.Client
	live   client.Reader
	saves  *memory.Saves
	events events.EventRecorder
}

// of is the saving of an instance's guest. Each instance has a PVC.
func (*suspends) of(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) *memory.Save {
	return &memory.Save{
		VMI: vmi, Volume: suspendVolume, PVC: pod.UniqueName(suspendPrefix+vmi.Name, maxPVCName, string(vmi.UID)),
		Labels:      map[string]string{kubevirt.VirtualMachineLabel: pod.LabelOf(vm.Name)},
		Owner:       *metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind),
		Annotations: vm.Annotations,
	}
}

// follow takes the next step for a VirtualMachine with a running guest, or without an instance. It
// returns when to look again, and why the guest is not suspended yet.
func (s *suspends) follow(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, strategy kubevirt.VirtualMachineRunStrategy,
) (time.Duration, error) {
	switch {
	case vmi == nil && wantsSuspend(vm) && !suspended(vm):
		if err := s.sweep(ctx, vm); err != nil {
			return 0, err
		}
		return 0, s.drop(ctx, vm, "NotSuspended", "the VM has no guest that runs")
	case vmi == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running:
		return 0, nil
	}
	if err := s.forget(ctx, vm, vmi, vmi.Annotations[pod.AnnotationResume]); err != nil {
		return 0, err
	}
	own := s.of(vm, vmi)
	if !wantsSuspend(vm) {
		return 0, s.forget(ctx, vm, vmi, own.PVC)
	}
	again, err := s.save(ctx, vm, own, strategy)
	if err != nil && !apierrors.IsConflict(err) {
		err = suspendError{fmt.Errorf("suspend the guest: %w", err)}
	}
	return again, err
}

// ending reports whether the guest of an instance ends or has ended, which the instance does not say yet.
func (s *suspends) ending(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) bool {
	p := new(corev1.Pod)
	err := s.live.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Current(vmi)}, p)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == pod.Container && c.State.Terminated != nil {
			return true
		}
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == podcondition.VMReady && c.Status == corev1.ConditionFalse && c.Reason == podcondition.ReasonSuspended
	})
}

// save has the node save the guest's memory, and end the guest.
func (s *suspends) save(
	ctx context.Context, vm *kubevirt.VirtualMachine, own *memory.Save, strategy kubevirt.VirtualMachineRunStrategy,
) (time.Duration, error) {
	switch {
	case strategy == kubevirt.RunStrategyOnce:
		return suspendRetry, errors.New("a VM with runStrategy Once does not start again; use Manual")
	case instances.Migrating(own.VMI):
		return suspendRetry, errors.New("it is moving to another node")
	case vm.Status.SnapshotInProgress != nil:
		return suspendRetry, fmt.Errorf("snapshot %q in progress", *vm.Status.SnapshotInProgress)
	}
	container, why, err := s.saves.Mount(ctx, own)
	switch {
	case err != nil && s.ending(ctx, own.VMI):
		return memory.Poll, nil // it has worked: no order reaches a guest that has ended
	case err != nil:
		return suspendRetry, err
	case why != "":
		return suspendRetry, errors.New(why)
	case container == "":
		return memory.Poll, nil
	}
	saved, err := s.saves.Order(ctx, own, order.Save{Container: container, Begin: true, Suspend: true})
	if err != nil && s.ending(ctx, own.VMI) {
		return memory.Poll, nil
	}
	if err != nil {
		return suspendRetry, err
	}
	if saved.State != order.SaveFailed {
		return memory.Poll, nil // the pod's status says when the guest has ended
	}
	if err := s.drop(ctx, vm, "SuspendFailed", "the guest runs on: "+saved.Message); err != nil {
		return 0, err
	}
	return 0, s.forget(ctx, vm, own.VMI, own.PVC)
}

// drop gives a request up.
func (s *suspends) drop(ctx context.Context, vm *kubevirt.VirtualMachine, reason, why string) error {
	before := vm.DeepCopy()
	delete(vm.Annotations, pod.AnnotationSuspend)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.events.Eventf(vm, nil, corev1.EventTypeWarning, reason, "Suspend", "%s", why)
	return nil
}

// note has the VirtualMachine stay halted, and its next start go on from the memory of an instance that
// the node has suspended. Until it is noted, no other instance starts.
func (s *suspends) note(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	own := s.of(vm, vmi)
	if vm.Annotations[pod.AnnotationResume] == own.PVC {
		return nil
	}
	before := vm.DeepCopy()
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, pod.AnnotationResume, own.PVC)
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, pod.AnnotationSuspend, "true")
	halted, no := kubevirt.RunStrategyHalted, false
	switch strategy, err := vm.RunStrategy(); {
	case err != nil:
		return err
	case strategy != kubevirt.RunStrategyAlways: // the others start no guest that has ended by itself
	case vm.Spec.Running != nil:
		vm.Spec.Running = &no
	default:
		vm.Spec.RunStrategy = &halted
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := s.client.Patch(ctx, vm, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("note that the guest of VM %s/%s is suspended: %w", vm.Namespace, vm.Name, err))
	}
	s.events.Eventf(vm, vmi, corev1.EventTypeNormal, "Suspended", "Suspend", "The guest's memory is on PVC %s; the next start resumes it", own.PVC)
	return nil
}

// sweep deletes the PVCs that a VirtualMachine without an instance has for the memory of guests that were not suspended.
func (s *suspends) sweep(ctx context.Context, vm *kubevirt.VirtualMachine) error {
	live := new(kubevirt.VirtualMachine) // the cache may not know yet that the guest was suspended
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(vm), live); err != nil || live.Annotations[pod.AnnotationResume] != "" {
		return client.IgnoreNotFound(err)
	}
	empty := func() *corev1.PersistentVolumeClaimList { return new(corev1.PersistentVolumeClaimList) }
	labelled := client.MatchingLabels{kubevirt.VirtualMachineLabel: pod.LabelOf(vm.Name)}
	err := pages.Each(ctx, s.live, vm.Namespace, empty, func(page *corev1.PersistentVolumeClaimList) (bool, error) {
		for i := range page.Items {
			pvc := &page.Items[i]
			if !strings.HasPrefix(pvc.Name, suspendPrefix) || pvc.DeletionTimestamp != nil || !metav1.IsControlledBy(pvc, vm) {
				continue
			}
			if err := diskguard.Delete(ctx, s.saves.Uncached, diskguard.MemoryResumed, pvc); err != nil {
				return true, err
			}
		}
		return false, nil
	}, labelled)
	if err != nil {
		return fmt.Errorf("look for PVCs with memory of VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

// forget deletes a PVC with memory that no guest goes on from any more, and the pod that has it mounted.
// Kubernetes keeps the PVC while a pod has it.
func (s *suspends) forget(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, name string) error {
	if !strings.HasPrefix(name, suspendPrefix) {
		return nil // a snapshot's
	}
	pvc, key := new(corev1.PersistentVolumeClaim), client.ObjectKey{Namespace: vm.Namespace, Name: name}
	if err := s.client.Get(ctx, key, pvc); err != nil || pvc.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	if err := s.live.Get(ctx, key, pvc); err != nil || pvc.DeletionTimestamp != nil || !metav1.IsControlledBy(pvc, vm) {
		return client.IgnoreNotFound(err) // the cache has no owners
	}
	if err := s.saves.Unmount(ctx, s.of(vm, vmi)); err != nil {
		return err
	}
	return diskguard.Delete(ctx, s.saves.Uncached, diskguard.MemoryResumed, pvc)
}
