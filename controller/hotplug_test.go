package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestHotplug: a volume that a template gets while the VM runs reaches the instance, and an
// attachment pod on the VM's node has its PVC until the VM has ended. No kubelet carries orders out here.
func TestHotplug(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.startWith(controller.Options{AttachmentImage: "registry.example.com/pause:1"})
	const name = "plugged"
	w.node("plugged-node")
	w.pvc("plugged", corev1.PersistentVolumeBlock)
	vm, p := w.runningOnce(name, "plugged-node")
	w.change(vm, false, func() {
		s := &vm.Spec.Template.Spec
		c := new(kubevirt.PersistentVolumeClaimVolumeSource)
		c.ClaimName, c.Hotpluggable = "plugged", true
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		if len(s.Domain.Devices.Disks) == 0 {
			s.Domain.Devices.Disks = []kubevirt.Disk{{Name: s.Volumes[0].Name}}
		}
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{
			Name: "data", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI}},
		})
	})
	of := func(vmi *kubevirt.VirtualMachineInstance) kubevirt.VolumeStatus {
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == "data" {
				return s
			}
		}
		return kubevirt.VolumeStatus{}
	}
	vmi := until(w, new(kubevirt.VirtualMachineInstance), name, "an attachment pod", func(vmi *kubevirt.VirtualMachineInstance) bool {
		return of(vmi).Phase == kubevirt.HotplugVolumeAttachedToNode
	})
	holder := until(w, new(corev1.Pod), of(vmi).HotplugVolume.AttachPodName, "the pod", func(*corev1.Pod) bool { return true })
	if holder.Spec.Containers[0].Image != "registry.example.com/pause:1" || holder.Labels[kubevirt.AppLabel] != pod.AttachmentLabelValue {
		t.Errorf("attachment pod: %+v", holder)
	}
	w.bind(holder, "plugged-node")
	w.change(holder, true, func() {
		holder.Status.Phase = corev1.PodRunning
		holder.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "hotplug-disk", ContainerID: "containerd://" + strings.Repeat("c", 64),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
	})
	until(w, vmi, name, "an order", func(vmi *kubevirt.VirtualMachineInstance) bool {
		s := of(vmi)
		return s.Phase == kubevirt.HotplugVolumeMounted && s.Reason == "FailedAttachVolume" && strings.Contains(s.Message, "disk-attach in pod "+p.Name) &&
			s.HotplugVolume.AttachPodUID == holder.UID
	})
	if c := w.pods(name); len(c) != 1 {
		t.Errorf("%d pods of the instance", len(c))
	}

	w.state(p, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}})
	until(w, holder, holder.Name, "its deletion", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	for _, o := range []client.Object{holder, vm} {
		if err := w.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}
}
