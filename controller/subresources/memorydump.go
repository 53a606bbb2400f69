package subresources

import (
	"context"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// dumps requests dumps of guests' memory. Package vm carries the requests out.
type dumps struct {
	objects client.Client
	found   interface {
		instances
		machines
	}
}

// request has a running VM's memory dumped to a PVC, which stays associated with the VM.
func (d *dumps) request(ctx context.Context, c *call) error {
	var given kubevirt.VirtualMachineMemoryDumpRequest
	if err := c.body(&given); err != nil {
		return err
	}
	return d.change(ctx, c, func(vm *kubevirt.VirtualMachine) error {
		claim, before := given.ClaimName, vm.Status.MemoryDumpRequest
		switch {
		case claim == "" && before == nil:
			return apierrors.NewBadRequest("Memory dump requires claimName to be set")
		case before != nil && claim != "" && claim != before.ClaimName:
			return c.conflict("can't request memory dump for pvc [%s] while pvc [%s] is still associated as the memory dump pvc",
				claim, before.ClaimName)
		case claim == "":
			claim = before.ClaimName
		}
		vmi, err := d.found.instance(ctx, c)
		if err != nil {
			return err
		}
		if vmi.Status.Phase != kubevirt.Running {
			return c.notRunning(vmi)
		}
		if err := d.check(ctx, vmi, claim); err != nil {
			return err
		}
		switch {
		case before == nil:
		case before.Phase == kubevirt.MemoryDumpDissociating:
			return c.conflict("can't dump memory for pvc [%s] a remove memory dump request is in progress", claim)
		case before.Phase != kubevirt.MemoryDumpCompleted && before.Phase != kubevirt.MemoryDumpFailed:
			return c.conflict("memory dump request for pvc [%s] already in progress", claim)
		}
		vm.Status.MemoryDumpRequest = &kubevirt.VirtualMachineMemoryDumpRequest{ClaimName: claim, Phase: kubevirt.MemoryDumpAssociating}
		return nil
	})
}

// remove ends the association of a VM with the PVC of its memory dump. The PVC keeps the dump.
func (d *dumps) remove(ctx context.Context, c *call) error {
	return d.change(ctx, c, func(vm *kubevirt.VirtualMachine) error {
		before := vm.Status.MemoryDumpRequest
		switch {
		case before == nil:
			return c.conflict("can't remove memory dump association for vm %s, no association found", vm.Name)
		case before.Remove:
			return c.conflict("memory dump remove request for pvc [%s] already exists", before.ClaimName)
		}
		vm.Status.MemoryDumpRequest = &kubevirt.VirtualMachineMemoryDumpRequest{
			ClaimName: before.ClaimName, Phase: kubevirt.MemoryDumpDissociating, Remove: true,
		}
		return nil
	})
}

// change writes a virtual machine's request, unless the virtual machine has changed meanwhile.
func (d *dumps) change(ctx context.Context, c *call, change func(*kubevirt.VirtualMachine) error) error {
	return c.decide(func() error {
		vm, err := d.found.machine(ctx, c)
		if err != nil {
			return err
		}
		before := vm.DeepCopy()
		if err := change(vm); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := d.objects.Status().Patch(ctx, vm, patch); err != nil {
			return c.failed(stale(err))
		}
		return nil
	})
}

// check refuses a PVC that can't have the memory of an instance, in KubeVirt's words.
func (d *dumps) check(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, claim string) error {
	resource := schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: "persistentvolumeclaim"}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(resource, claim, fmt.Errorf(format, args...))
	}
	pvc := new(corev1.PersistentVolumeClaim)
	err := d.objects.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: claim}, pvc)
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewNotFound(resource, claim)
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("unable to retrieve pvc [%s]: %w", claim, err))
	case pod.IsBlock(pvc):
		return conflict("pvc should be filesystem pvc")
	case slices.Contains(pvc.Spec.AccessModes, corev1.ReadOnlyMany):
		return conflict("pvc access mode can't be read only")
	}
	requested, needed := pvc.Spec.Resources.Requests[corev1.ResourceStorage], dumpSize(vmi)
	if requested.Cmp(needed) < 0 {
		return conflict("pvc size [%s] should be bigger then [%s]", requested.String(), needed.String())
	}
	return nil
}

const (
	// dumpOverhead is the room in bytes that a dump needs beside the guest's memory, and
	// filesystemOverhead the share of a volume that its file system takes, as with KubeVirt.
	dumpOverhead       = 100 << 20
	filesystemOverhead = 0.055
)

// dumpSize returns the size of a PVC that has room for the memory of an instance.
func dumpSize(vmi *kubevirt.VirtualMachineInstance) resource.Quantity {
	d := vmi.Spec.Domain
	memory := d.Resources.Requests[corev1.ResourceMemory]
	if d.Memory != nil && d.Memory.Guest != nil && d.Memory.Guest.Cmp(memory) > 0 { // of a VM with less than its guest has
		memory = *d.Memory.Guest
	}
	size := float64(memory.Value()+dumpOverhead) * (1 + filesystemOverhead)
	return *resource.NewQuantity(int64(math.Ceil(size/(1<<20)))<<20, resource.BinarySI)
}
