package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/backoff"
)

// outcome is the input of a VirtualMachine's status.
type outcome struct {
	vmi      *kubevirt.VirtualMachineInstance // nil if there is none
	strategy kubevirt.VirtualMachineRunStrategy
	// template is the VirtualMachine's with what its types add, if the instance is of another; nil
	// if that is unknown.
	template     *kubevirt.VirtualMachineInstanceTemplateSpec
	staged       bool // a running instance takes over nothing of the template
	decision     decision
	wanted       bool // an instance, where there is none
	startFailure *kubevirt.VirtualMachineStartFailure
	failure      error // what could not be done
	unbound      bool  // a PVC waits for its volume
	// snapshots say which volumes snapshots have; nil if that is unknown.
	snapshots  []kubevirt.VolumeSnapshotStatus
	lacksClass bool // a PVC has no VolumeSnapshotClass
	// unrecovered are the volumes of which it is open on which PVCs their data is, or will be.
	unrecovered []migratedVolume
	// unmoved is why volumes do not migrate as the template says, moving when to look again at those that do.
	unmoved string
	moving  time.Duration
	// vanishing says which disks of the running guest have been deleted.
	vanishing string
	// suspending is when to look again at a guest that is being saved; 0 for none.
	suspending time.Duration
}

// again returns when to reconcile without an event; 0 for never.
func (o outcome) again(now time.Time) time.Duration {
	switch {
	case o.suspending > 0:
		return o.suspending
	case o.moving > 0:
		return o.moving
	case errors.Is(o.failure, errNeedsCDI):
		return lookForCDI
	case isSourceError(o.failure):
		return lookForSource
	case o.decision.wait > 0:
		return o.decision.wait
	case o.startFailure != nil && o.vmi != nil && o.vmi.Status.Phase == kubevirt.Running:
		// At most as long as it takes: if the clock was set back, it has run for less than nothing.
		return min(max(backoff.Steady-backoff.RunTime(o.vmi, now), time.Second), backoff.Steady)
	case o.lacksClass:
		return lookForClass
	}
	return 0
}

// reportLater reports whether the first status of a VirtualMachine, whose first instance was just created, can wait for the
// instance's event: it records nothing that the next step needs. With many new VirtualMachines the instance runs
// before that event's turn comes, and one status is enough.
func (o outcome) reportLater(vm *kubevirt.VirtualMachine) bool {
	return o.failure == nil && !o.lacksClass && o.strategy == kubevirt.RunStrategyAlways &&
		vm.Status.PrintableStatus == "" && vm.Status.StartFailure == nil && len(vm.Status.StateChangeRequests) == 0
}

// report writes the VirtualMachine's status, if it has changed.
func (r *Reconciler) report(ctx context.Context, vm *kubevirt.VirtualMachine, o outcome) error {
	next := status(vm, o, r.now())
	if equality.Semantic.DeepEqual(next, vm.Status) {
		return nil
	}
	before := vm.Status
	if err := writeStatus(ctx, r.client, vm, next); err != nil {
		return client.IgnoreNotFound(err)
	}
	if o.failure != nil {
		r.events.Eventf(vm, nil, corev1.EventTypeWarning, failureReason(o.failure), "Start", "%s", o.failure)
	}
	if i := slices.IndexFunc(before.Conditions, func(c cond) bool { return c.Type == conditionDisksDeleted }); o.vanishing != "" &&
		(i < 0 || before.Conditions[i].Message != o.vanishing) {
		r.events.Eventf(vm, o.vmi, corev1.EventTypeWarning, reasonDiskDeleted, "Run", "%.1000s", o.vanishing)
	}
	if was := before.StartFailure; o.startFailure != nil && (was == nil || was.LastFailedVMIUID != o.startFailure.LastFailedVMIUID) {
		if c := crashLoop(vm, o); c != nil {
			r.events.Eventf(vm, o.vmi, corev1.EventTypeWarning, c.Reason, "Start", "%s", c.Message)
		}
	}
	return nil
}

// writeStatus writes a status, if the VirtualMachine is still the one that was read, and reads
// the VirtualMachine as it is then. The patch is made of the statuses alone.
func writeStatus(ctx context.Context, w client.StatusClient, vm *kubevirt.VirtualMachine, next kubevirt.VirtualMachineStatus) error {
	key := metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name, ResourceVersion: vm.ResourceVersion}
	before, after := &kubevirt.VirtualMachine{ObjectMeta: key, Status: vm.Status}, &kubevirt.VirtualMachine{ObjectMeta: key, Status: next}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("write status of VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	*vm = *after
	return nil
}

// status returns the VirtualMachine's status after an outcome. It is pure.
func status(vm *kubevirt.VirtualMachine, o outcome, now time.Time) kubevirt.VirtualMachineStatus {
	s := *vm.Status.DeepCopy()
	s.Created = o.vmi != nil
	s.Ready = o.vmi != nil && isTrue(o.vmi, kubevirt.VirtualMachineInstanceReady)
	s.StartFailure = o.startFailure
	s.DesiredGeneration = vm.Generation
	if o.vmi != nil {
		if g := generationOf(o.vmi); g != 0 {
			s.ObservedGeneration = g
		}
	}
	// The status has the strategy once it has taken effect.
	if o.strategy != "" && (o.vmi != nil || !o.wanted) {
		s.RunStrategy = o.strategy
	}
	s.StateChangeRequests = pending(vm, o.strategy, o.vmi)
	if o.decision.again && !startRequested(vm) {
		s.StateChangeRequests = append(s.StateChangeRequests,
			kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
	}
	if o.snapshots != nil {
		s.VolumeSnapshotStatuses = o.snapshots
	}
	s.MemoryDumpRequest = nextDump(vm, o.vmi, metav1.NewTime(now))
	s.PrintableStatus = printable(vm, o)
	s.VolumeUpdateState = volumeUpdateState(o.unrecovered)
	s.Conditions = conditions(vm, o, now)
	return s
}

type cond = kubevirt.VirtualMachineCondition

// copied are the conditions of an instance that its VirtualMachine has, too.
var copied = []kubevirt.VirtualMachineInstanceConditionType{
	kubevirt.VirtualMachineInstanceReady,
	kubevirt.VirtualMachineInstancePaused,
	kubevirt.VirtualMachineInstanceAgentConnected,
	kubevirt.VirtualMachineInstanceIsMigratable,
	kubevirt.VirtualMachineInstanceIsStorageLiveMigratable,
	kubevirt.VirtualMachineInstanceSynchronized,
	kubevirt.VirtualMachineInstanceVCPUChange,
	kubevirt.VirtualMachineInstanceMemoryChange,
	kubevirt.VirtualMachineInstanceDataVolumesReady,
	kubevirt.VirtualMachineInstanceConditionType(corev1.PodScheduled),
}

func conditions(vm *kubevirt.VirtualMachine, o outcome, now time.Time) []cond {
	wanted := fromInstance(o.vmi)
	if o.failure != nil {
		wanted = append(wanted, cond{
			Type: kubevirt.VirtualMachineFailure, Status: corev1.ConditionTrue,
			Reason: failureReason(o.failure), Message: o.failure.Error(),
		})
	}
	if c := crashLoop(vm, o); c != nil {
		wanted = append(wanted, *c)
	}
	if o.vmi != nil && !o.vmi.IsFinal() && (o.unmoved != "" || outdated(vm, o.template, o.vmi) || o.staged && changed(vm, o.vmi) || cardsOutdated(vm, o.vmi, o.staged)) {
		wanted = append(wanted, cond{
			Type: kubevirt.VirtualMachineRestartRequired, Status: corev1.ConditionTrue,
			Reason: "RestartRequired", Message: cmp.Or(o.unmoved, "the template has changed since the start; restart the VM to apply it"),
		})
	}
	if o.vanishing != "" {
		wanted = append(wanted, cond{Type: conditionDisksDeleted, Status: corev1.ConditionTrue, Reason: reasonDiskDeleted, Message: o.vanishing})
	}
	if len(o.unrecovered) > 0 && (o.vmi == nil || o.vmi.IsFinal()) {
		wanted = append(wanted, cond{
			Type: kubevirt.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Reason: "VolumesChange",
			Message: "The VM ended before its disks were copied: have the template name the PVCs that have its data, or remove updateVolumesStrategy if it does",
		})
	}
	for i := range wanted {
		have := slices.IndexFunc(vm.Status.Conditions, func(c cond) bool { return c.Type == wanted[i].Type })
		wanted[i].LastTransitionTime = metav1.NewTime(now)
		if have >= 0 && vm.Status.Conditions[have].Status == wanted[i].Status {
			wanted[i].LastTransitionTime = vm.Status.Conditions[have].LastTransitionTime
		}
	}
	return wanted
}

// failureReason returns KubeVirt's reason of a failure.
func failureReason(failure error) string {
	if m := missing(failure); m != nil {
		return m.Reason
	}
	if isTemplateError(failure) {
		return reasonDataVolume
	}
	if _, is := errors.AsType[hotplugError](failure); is {
		return reasonHotplug
	}
	if _, is := errors.AsType[cardsError](failure); is {
		return reasonCards
	}
	if _, is := errors.AsType[suspendError](failure); is {
		return reasonSuspend
	}
	if _, is := errors.AsType[dumpError](failure); is {
		return reasonMemoryDump
	}
	return "FailedCreate"
}

// fromInstance returns the conditions copied from the instance. It omits conditions
// that change before the guest runs and that matter to no user: each costs a write.
func fromInstance(vmi *kubevirt.VirtualMachineInstance) []cond {
	unready := cond{Type: kubevirt.VirtualMachineReady, Status: corev1.ConditionFalse}
	if vmi == nil {
		unready.Reason, unready.Message = "VMINotExists", "VMI does not exist"
		return []cond{unready}
	}
	underway := vmi.Status.Phase != kubevirt.Running && vmi.Status.Phase != kubevirt.Unknown
	var all []cond
	if underway {
		unready.Reason, unready.Message = kubevirt.GuestNotRunningReason, "Guest VM is not reported as running"
		all = append(all, unready)
	}
	for _, c := range vmi.Status.Conditions {
		bad := c.Type == kubevirt.VirtualMachineInstanceSynchronized || string(c.Type) == string(corev1.PodScheduled)
		switch {
		case !slices.Contains(copied, c.Type):
		case bad && c.Status != corev1.ConditionFalse:
		case underway && !bad && (c.Type != kubevirt.VirtualMachineInstanceDataVolumesReady || c.Status != corev1.ConditionFalse):
		default:
			all = append(all, cond{
				Type: kubevirt.VirtualMachineConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	return all
}

func isTrue(vmi *kubevirt.VirtualMachineInstance, kind kubevirt.VirtualMachineInstanceConditionType) bool {
	c := condition(vmi, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(
	vmi *kubevirt.VirtualMachineInstance, kind kubevirt.VirtualMachineInstanceConditionType,
) *kubevirt.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if vmi.Status.Conditions[i].Type == kind {
			return &vmi.Status.Conditions[i]
		}
	}
	return nil
}
