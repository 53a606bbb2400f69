package subresources

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// volumes adds and removes the volumes of instances and virtual machines.
type volumes struct {
	objects client.Client
	found   interface {
		instances
		machines
	}
}

// add gives a VM a volume: an instance until it ends, and a virtual machine by its
// template, which the reconciler passes on to its instance.
func (s *volumes) add(ctx context.Context, c *call) error {
	options := kubevirt.AddVolumeOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	switch {
	case options.Name == "":
		return apierrors.NewBadRequest("AddVolumeOptions requires name to be set")
	case options.Disk == nil:
		return apierrors.NewBadRequest("AddVolumeOptions requires disk to not be nil")
	case options.VolumeSource == nil:
		return apierrors.NewBadRequest("AddVolumeOptions requires VolumeSource to not be nil")
	}
	if c.resource == "virtualmachines" && options.Disk.DiskDevice == (kubevirt.DiskDevice{}) { // as with KubeVirt
		options.Disk.Disk = &kubevirt.DiskTarget{}
	}
	v, d := added(options)
	return s.change(ctx, c, options.DryRun, func(spec *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) error {
		if vmi != nil {
			if err := pod.CheckHotplug(&d); err != nil {
				return apierrors.NewBadRequest(fmt.Sprintf("Hotplug configuration for disk [%s] %s.", d.Name, err))
			}
		}
		for i := range spec.Volumes {
			have := &spec.Volumes[i]
			if have.Name == v.Name {
				return c.conflict("Unable to add volume [%s] because volume with that name already exists", v.Name)
			}
			if source := pod.ClaimOf(have); source != "" && source == pod.ClaimOf(&v) {
				return c.conflict("Unable to add volume source [%s] because it already exists", source)
			}
		}
		if pod.DiskOf(spec, v.Name) != nil {
			return c.conflict("Unable to add volume [%s] because disk with that name already exists", v.Name)
		}
		spec.Volumes = append(spec.Volumes, v)
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, d)
		return nil
	})
}

// added returns the volume and the disk that options describe.
func added(o kubevirt.AddVolumeOptions) (kubevirt.Volume, kubevirt.Disk) {
	v := kubevirt.Volume{Name: o.Name, VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: o.VolumeSource.PersistentVolumeClaim, DataVolume: o.VolumeSource.DataVolume,
	}}
	if v.PersistentVolumeClaim != nil {
		v.PersistentVolumeClaim.Hotpluggable = true
	}
	if v.DataVolume != nil {
		v.DataVolume.Hotpluggable = true
	}
	d := *o.Disk
	d.Name = o.Name
	if d.Disk != nil && d.Disk.Bus == "" {
		d.Disk.Bus = kubevirt.DiskBusSCSI
	}
	if d.LUN != nil && d.LUN.Bus == "" {
		d.LUN.Bus = kubevirt.DiskBusSCSI
	}
	return v, d
}

// remove takes a volume that addVolume could have added.
func (s *volumes) remove(ctx context.Context, c *call) error {
	options := kubevirt.RemoveVolumeOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	if options.Name == "" {
		return apierrors.NewBadRequest("RemoveVolumeOptions requires name to be set")
	}
	return s.change(ctx, c, options.DryRun, func(spec *kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance) error {
		at := slices.IndexFunc(spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == options.Name })
		if at < 0 {
			at = slices.IndexFunc(spec.Volumes, func(v kubevirt.Volume) bool { return pod.ClaimOf(&v) == options.Name })
		}
		if at < 0 {
			return c.conflict("Unable to remove volume [%s] because it does not exist", options.Name)
		}
		v := spec.Volumes[at]
		if !pod.Hotpluggable(&v) {
			return c.conflict("Unable to remove volume [%s] because it is not hotpluggable", v.Name)
		}
		if c.resource == "virtualmachineinstances" && vmi != nil && slices.ContainsFunc(vmi.Status.VolumeStatus,
			func(s kubevirt.VolumeStatus) bool { return s.Name == v.Name && s.HotplugVolume == nil }) {
			return c.conflict("Unable to remove volume [%s] because the VM has started with it, and keeps it until it ends", v.Name)
		}
		pod.Remove(spec, v.Name)
		return nil
	})
}

// change changes the spec of the call's instance, or the template of its virtual
// machine. Change gets the running instance; nil for none.
func (s *volumes) change(
	ctx context.Context, c *call, dryRun []string,
	change func(*kubevirt.VirtualMachineInstanceSpec, *kubevirt.VirtualMachineInstance) error,
) error {
	return c.decide(func() error {
		object, spec, vmi, err := s.withVolumes(ctx, c)
		if err != nil {
			return err
		}
		before := object.DeepCopyObject().(client.Object)
		if err := change(spec, vmi); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := s.objects.Patch(ctx, object, patch, &client.PatchOptions{DryRun: dryRun}); err != nil {
			return c.failed(stale(err))
		}
		return nil
	})
}

// withVolumes returns the call's object, the spec of its instance in it, and the running instance.
func (s *volumes) withVolumes(ctx context.Context, c *call) (
	client.Object, *kubevirt.VirtualMachineInstanceSpec, *kubevirt.VirtualMachineInstance, error,
) {
	vmi, err := s.found.instance(ctx, c)
	if c.resource == "virtualmachineinstances" {
		if err != nil {
			return nil, nil, nil, err
		}
		if vmi.Status.Phase != kubevirt.Running {
			return nil, nil, nil, c.notRunning(vmi)
		}
		return vmi, &vmi.Spec, vmi, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, nil, err
	}
	vm, machineErr := s.found.machine(ctx, c)
	if machineErr != nil {
		return nil, nil, nil, machineErr
	}
	if vm.Spec.Template == nil {
		return nil, nil, nil, c.conflict("the VM has no template")
	}
	if err != nil || !metav1.IsControlledBy(vmi, vm) || vmi.IsFinal() {
		vmi = nil
	}
	return vm, &vm.Spec.Template.Spec, vmi, nil
}
