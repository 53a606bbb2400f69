package vm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// A memory dump of a VirtualMachine, as its users and KubeVirt's clients see it:
//
//	Associating ──▶ InProgress ──▶ Unmounting ──▶ Completed
//	 (a request)   (the instance    (dumped)      (the instance does
//	                has the volume)               not have the volume)
//
//	InProgress ──▶ Failed             any ──▶ Dissociating ──▶ no request
//
// The template keeps the volume until Dissociating. No instance starts with it.

// reasonMemoryDump is KubeVirt's reason for a request that could not be carried out.
const reasonMemoryDump = "MemoryDumpError"

// dumps carries out the requests for memory dumps.
type dumps struct {
	client client.Client
	live   client.Reader
}

// dumpError says that a request for a memory dump could not be carried out.
type dumpError struct{ error }

func (e dumpError) Unwrap() error { return e.error }

// dumpFailed is KubeVirt's annotation of the PVC of a dump that failed.
const dumpFailed = "Memory dump failed"

// follow gives the template and the running instance the volume that the request for a memory dump
// is about, or takes it away.
func (r *dumps) follow(ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) error {
	request := vm.Status.MemoryDumpRequest
	if request == nil || vm.Spec.Template == nil {
		return nil
	}
	claim := request.ClaimName
	var err error
	switch request.Phase {
	case kubevirt.MemoryDumpAssociating:
		if vmi == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running {
			return nil
		}
		err = r.setDump(ctx, vm, &vm.Spec.Template.Spec, claim, true)
		if err == nil && !hasStatus(vmi, claim) { // another one of the volume is still there
			err = r.setDump(ctx, vmi, &vmi.Spec, claim, true)
		}
	case kubevirt.MemoryDumpUnmounting, kubevirt.MemoryDumpFailed:
		if err = r.annotateDump(ctx, vm, request); err == nil && vmi != nil {
			err = r.setDump(ctx, vmi, &vmi.Spec, claim, false)
		}
	case kubevirt.MemoryDumpDissociating:
		if vmi != nil {
			err = r.setDump(ctx, vmi, &vmi.Spec, claim, false)
		}
		if err == nil {
			err = r.setDump(ctx, vm, &vm.Spec.Template.Spec, claim, false)
		}
	}
	if err != nil {
		return dumpError{fmt.Errorf("memory dump to PVC %s: %w", claim, err)}
	}
	return nil
}

// setDump adds the volume of a memory dump to an object's spec, or removes it.
func (r *dumps) setDump(ctx context.Context, o client.Object, s *kubevirt.VirtualMachineInstanceSpec, claim string, add bool) error {
	has := pod.VolumeOf(s, claim)
	if has != nil && has.MemoryDump == nil {
		if add {
			return fmt.Errorf("%s has another volume %s; remove or rename it", o.GetName(), claim)
		}
		return nil
	}
	if add == (has != nil) {
		return nil
	}
	patch := client.MergeFromWithOptions(o.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
	if add {
		source := new(kubevirt.MemoryDumpVolumeSource)
		source.ClaimName, source.Hotpluggable = claim, true
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: claim, VolumeSource: kubevirt.VolumeSource{MemoryDump: source}})
	} else {
		pod.Remove(s, claim)
	}
	return client.IgnoreNotFound(r.client.Patch(ctx, o, patch))
}

// annotateDump writes the name of the dump's file to its PVC, or that the dump failed.
func (r *dumps) annotateDump(ctx context.Context, vm *kubevirt.VirtualMachine, request *kubevirt.VirtualMachineMemoryDumpRequest) error {
	value := dumpFailed
	if request.Phase == kubevirt.MemoryDumpUnmounting {
		if request.FileName == nil {
			return nil
		}
		value = *request.FileName
	}
	pvc := new(corev1.PersistentVolumeClaim) // the cache has no annotations
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: request.ClaimName}, pvc); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pvc.Annotations[kubevirt.PVCMemoryDumpAnnotation] == value {
		return nil
	}
	patch := client.MergeFrom(pvc.DeepCopy())
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, kubevirt.PVCMemoryDumpAnnotation, value)
	return client.IgnoreNotFound(r.client.Patch(ctx, pvc, patch))
}

// nextDump returns the request for a memory dump after what [dumps.follow] and the instance's
// controller have done. It is pure.
func nextDump(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, now metav1.Time) *kubevirt.VirtualMachineMemoryDumpRequest {
	next := vm.Status.MemoryDumpRequest.DeepCopy()
	if next == nil {
		return nil
	}
	if vmi != nil && vmi.IsFinal() {
		vmi = nil
	}
	var status *kubevirt.VolumeStatus
	given := false // to the instance
	if vmi != nil {
		given = pod.VolumeOf(&vmi.Spec, next.ClaimName) != nil
		for i := range vmi.Status.VolumeStatus {
			if s := &vmi.Status.VolumeStatus[i]; s.Name == next.ClaimName && s.MemoryDumpVolume != nil {
				status = s
			}
		}
	}
	associated := vm.Spec.Template != nil && pod.VolumeOf(&vm.Spec.Template.Spec, next.ClaimName) != nil
	switch next.Phase {
	case kubevirt.MemoryDumpAssociating:
		if associated && given {
			next.Phase = kubevirt.MemoryDumpInProgress
		}
	case kubevirt.MemoryDumpInProgress:
		followDump(next, status, given, now)
	case kubevirt.MemoryDumpUnmounting:
		if !given && status == nil {
			next.Phase = kubevirt.MemoryDumpCompleted
		}
	case kubevirt.MemoryDumpDissociating:
		if !given && status == nil && !associated {
			return nil
		}
	}
	return next
}

// followDump takes over what the instance reports of a dump that is in progress.
func followDump(next *kubevirt.VirtualMachineMemoryDumpRequest, status *kubevirt.VolumeStatus, given bool, now metav1.Time) {
	if !given && status == nil {
		next.Phase, next.EndTimestamp = kubevirt.MemoryDumpFailed, &now
		next.Message = "the VM stopped, or lost the volume, before its memory was dumped"
		return
	}
	if status == nil {
		return
	}
	info := status.MemoryDumpVolume
	if info.StartTimestamp != nil {
		next.StartTimestamp = info.StartTimestamp
	}
	switch status.Phase {
	case kubevirt.MemoryDumpVolumeCompleted:
		next.Phase, next.EndTimestamp, next.FileName = kubevirt.MemoryDumpUnmounting, info.EndTimestamp, new(info.TargetFileName)
	case kubevirt.MemoryDumpVolumeFailed:
		next.Phase, next.EndTimestamp, next.Message = kubevirt.MemoryDumpFailed, info.EndTimestamp, status.Message
	}
}
