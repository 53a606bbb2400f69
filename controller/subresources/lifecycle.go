package subresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// lifecycle starts, stops and restarts virtual machines.
type lifecycle struct {
	objects client.Client
	found   interface {
		instances
		machines
		pods
	}
}

// start requests an instance of a VM that may be started manually: it changes the strategy of a halted
// VM, and otherwise writes a request into the status, which the reconciler acts on.
func (l *lifecycle) start(ctx context.Context, c *call) error {
	options := kubevirt.StartOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	return c.decide(func() error { return l.tryStart(ctx, c, options) })
}

func (l *lifecycle) tryStart(ctx context.Context, c *call, options kubevirt.StartOptions) error {
	vm, vmi, strategy, err := l.state(ctx, c)
	if err != nil {
		return err
	}
	if vmi != nil && vmi.Status.Phase == kubevirt.Unknown {
		return c.unheard(vmi)
	}
	if vmi != nil && !vmi.IsFinal() && vmi.DeletionTimestamp == nil {
		return c.conflict("VM is already running")
	}
	if slices.ContainsFunc(vm.Status.Conditions, func(c kubevirt.VirtualMachineCondition) bool {
		return c.Type == kubevirt.VirtualMachineManualRecoveryRequired && c.Status == corev1.ConditionTrue
	}) {
		return unrecovered(c)
	}
	switch strategy {
	case kubevirt.RunStrategyHalted:
		if options.Paused { // the reconciler then changes the strategy
			return l.request(ctx, c, vm, options.DryRun, startRequest(options))
		}
		return l.setRunning(ctx, c, vm, true, options.DryRun)
	case kubevirt.RunStrategyRerunOnFailure, kubevirt.RunStrategyManual:
		requests := []kubevirt.VirtualMachineStateChangeRequest{startRequest(options)}
		if vmi != nil {
			requests = append([]kubevirt.VirtualMachineStateChangeRequest{{Action: kubevirt.StopRequest, UID: &vmi.UID}}, requests...)
		}
		return l.request(ctx, c, vm, options.DryRun, requests...)
	}
	return c.conflict("%s does not support manual start requests", strategy)
}

// unrecovered refuses to start a VM whose disks are being copied to other PVCs, or were when it ended.
func unrecovered(c *call) error {
	return c.conflict("VM recovery required: its disks are not copied to the PVCs of its template: wait for the migration, or have the template name the former PVCs")
}

func startRequest(options kubevirt.StartOptions) kubevirt.VirtualMachineStateChangeRequest {
	r := kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest}
	if options.Paused {
		r.Data = map[string]string{kubevirt.StartRequestDataPausedKey: kubevirt.StartRequestDataPausedTrue}
	}
	return r
}

// stop ends a VM's instance until a user starts the VM again.
func (l *lifecycle) stop(ctx context.Context, c *call) error {
	options := kubevirt.StopOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	return c.decide(func() error { return l.tryStop(ctx, c, options) })
}

func (l *lifecycle) tryStop(ctx context.Context, c *call, options kubevirt.StopOptions) error {
	vm, vmi, strategy, err := l.state(ctx, c)
	if err != nil {
		return err
	}
	running := vmi != nil && !vmi.IsFinal()
	hurry := options.GracePeriod != nil && running
	switch strategy {
	case kubevirt.RunStrategyHalted:
		if !running {
			return c.conflict("VM is not running")
		}
		if !hurry {
			return c.conflict("%s only supports manual stop requests with a shorter graceperiod", strategy)
		}
	case kubevirt.RunStrategyRerunOnFailure, kubevirt.RunStrategyManual:
		if !running {
			return c.conflict("VM is not running")
		}
		err = l.request(ctx, c, vm, options.DryRun, kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StopRequest, UID: &vmi.UID})
	default:
		err = l.setRunning(ctx, c, vm, false, options.DryRun)
	}
	if err != nil || !hurry {
		return err
	}
	return l.hurry(ctx, c, vmi, *options.GracePeriod, options.DryRun)
}

// restart replaces a virtual machine's instance by another.
func (l *lifecycle) restart(ctx context.Context, c *call) error {
	options := kubevirt.RestartOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	if p := options.GracePeriodSeconds; p != nil && *p != 0 {
		return apierrors.NewBadRequest("a restart takes no grace period but 0, which powers the VM off: the VM's own is in its template")
	}
	return c.decide(func() error { return l.tryRestart(ctx, c, options) })
}

func (l *lifecycle) tryRestart(ctx context.Context, c *call, options kubevirt.RestartOptions) error {
	vm, vmi, strategy, err := l.state(ctx, c)
	if err != nil {
		return err
	}
	if strategy == kubevirt.RunStrategyHalted || strategy == kubevirt.RunStrategyOnce {
		return c.conflict("%s does not support manual restart requests", strategy)
	}
	if vmi == nil || vmi.IsFinal() {
		return c.conflict("VM is not running: %s", kubevirt.StartRequest)
	}
	if s := vm.Status.VolumeUpdateState; s != nil && s.VolumeMigrationState != nil && len(s.VolumeMigrationState.MigratedVolumes) > 0 {
		return unrecovered(c)
	}
	err = l.request(ctx, c, vm, options.DryRun,
		kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StopRequest, UID: &vmi.UID},
		kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
	if err != nil || options.GracePeriodSeconds == nil {
		return err
	}
	return l.hurry(ctx, c, vmi, *options.GracePeriodSeconds, options.DryRun)
}

// errStale says that the VM has changed since it was read, mostly by the reconciler.
const errStale = constant("the virtual machine has changed since it was read; try again")

// decide accepts a call that has been decided, on what there is at that moment.
func (c *call) decide(try func() error) error {
	stale := func(err error) bool { return errors.Is(err, errStale) }
	if err := retry.OnError(retry.DefaultBackoff, stale, try); err != nil {
		return err
	}
	return c.accept()
}

// state is a virtual machine, its instance or nil, and its strategy.
func (l *lifecycle) state(ctx context.Context, c *call) (
	*kubevirt.VirtualMachine, *kubevirt.VirtualMachineInstance, kubevirt.VirtualMachineRunStrategy, error,
) {
	vm, err := l.found.machine(ctx, c)
	if err != nil {
		return nil, nil, "", err
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		return nil, nil, "", apierrors.NewInternalError(err)
	}
	vmi, err := l.found.instance(ctx, c)
	if apierrors.IsNotFound(err) {
		return vm, nil, strategy, nil
	}
	if err != nil {
		return nil, nil, "", err
	}
	if !metav1.IsControlledBy(vmi, vm) {
		return nil, nil, "", c.conflict("VirtualMachineInstance %s belongs to another owner", vmi.Name)
	}
	return vm, vmi, strategy, nil
}

// setRunning says in the manifest, in the field that it has, whether there should be an instance.
func (l *lifecycle) setRunning(ctx context.Context, c *call, vm *kubevirt.VirtualMachine, running bool, dryRun []string) error {
	before := vm.DeepCopy()
	if vm.Spec.Running != nil {
		vm.Spec.Running = &running
	} else {
		strategy := kubevirt.RunStrategyHalted
		if running {
			strategy = kubevirt.RunStrategyAlways
		}
		vm.Spec.RunStrategy = &strategy
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := l.objects.Patch(ctx, vm, patch, &client.PatchOptions{DryRun: dryRun}); err != nil {
		return c.failed(stale(err))
	}
	return nil
}

// request writes a request into the status, unless the reconciler is still acting on another one.
func (l *lifecycle) request(
	ctx context.Context, c *call, vm *kubevirt.VirtualMachine, dryRun []string, requests ...kubevirt.VirtualMachineStateChangeRequest,
) error {
	if len(vm.Status.StateChangeRequests) > 0 {
		return c.conflict("unable to complete request: stop/start already underway")
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": vm.ResourceVersion},
		"status":   map[string]any{"stateChangeRequests": requests},
	})
	if err != nil {
		return err
	}
	err = l.objects.Status().Patch(ctx, vm, client.RawPatch(types.MergePatchType, text),
		&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}})
	if err != nil {
		return c.failed(stale(err))
	}
	return nil
}

// hurry shortens what is left of a guest's time to shut down. Without a pod there is no guest yet.
func (l *lifecycle) hurry(ctx context.Context, c *call, vmi *kubevirt.VirtualMachineInstance, seconds int64, dryRun []string) error {
	if seconds < pod.GracePeriod(vmi.Spec.TerminationGracePeriodSeconds) {
		text := fmt.Sprintf(`{"spec": {"terminationGracePeriodSeconds": %d}}`, seconds)
		err := l.objects.Patch(ctx, vmi, client.RawPatch(types.MergePatchType, []byte(text)),
			&client.PatchOptions{DryRun: dryRun})
		if client.IgnoreNotFound(err) != nil {
			return c.failed(err)
		}
	}
	found, err := l.found.podOf(ctx, vmi)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.objects.Delete(ctx, found, &client.DeleteOptions{
		GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &found.UID}, DryRun: dryRun,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return c.failed(err)
	}
	return nil
}

// stale marks the error of a write that came too late.
func stale(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// failed passes on what the API server says: it is about the caller's object.
func (c *call) failed(err error) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("%s %s/%s: %w", c.subresource, c.namespace, c.name, err))
}
