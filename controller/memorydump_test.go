package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestMemoryDump: a request reaches the template, the instance and an attachment pod, and fails
// with the end of the VM. No kubelet carries orders out here.
func TestMemoryDump(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.startWith(controller.Options{AttachmentImage: "registry.example.com/pause:1"})
	const name = "dumped"
	w.node("dumped-node")
	w.pvc("dump", corev1.PersistentVolumeFilesystem)
	vm, p := w.runningOnce(name, "dumped-node")
	w.change(vm, true, func() {
		vm.Status.MemoryDumpRequest = &kubevirt.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: kubevirt.MemoryDumpAssociating}
	})
	until(w, vm, name, "a dump in progress", func(vm *kubevirt.VirtualMachine) bool {
		r := vm.Status.MemoryDumpRequest
		return r != nil && r.Phase == kubevirt.MemoryDumpInProgress && pod.VolumeOf(&vm.Spec.Template.Spec, "dump") != nil
	})
	attachment := ""
	until(w, new(kubevirt.VirtualMachineInstance), name, "an attachment pod", func(vmi *kubevirt.VirtualMachineInstance) bool {
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == "dump" && s.MemoryDumpVolume != nil && s.Phase == kubevirt.HotplugVolumeAttachedToNode {
				attachment = s.HotplugVolume.AttachPodName
			}
		}
		return attachment != ""
	})
	holder := until(w, new(corev1.Pod), attachment, "the pod", func(*corev1.Pod) bool { return true })
	if len(holder.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("attachment pod: %+v", holder.Spec)
	}
	w.state(p, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}})
	until(w, vm, name, "a dump that failed", func(vm *kubevirt.VirtualMachine) bool {
		return vm.Status.MemoryDumpRequest.Phase == kubevirt.MemoryDumpFailed
	})
	until(w, new(corev1.PersistentVolumeClaim), "dump", "its annotation", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Annotations[kubevirt.PVCMemoryDumpAnnotation] == "Memory dump failed"
	})
	w.change(vm, true, func() {
		vm.Status.MemoryDumpRequest.Phase, vm.Status.MemoryDumpRequest.Remove = kubevirt.MemoryDumpDissociating, true
	})
	until(w, vm, name, "no association", func(vm *kubevirt.VirtualMachine) bool {
		return vm.Status.MemoryDumpRequest == nil && pod.VolumeOf(&vm.Spec.Template.Spec, "dump") == nil
	})
	for _, o := range []client.Object{holder, vm} {
		if err := client.IgnoreNotFound(w.Delete(t.Context(), o, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	}
}
