package pod

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// AnnotationResume is on a VirtualMachine whose next instance goes on from a snapshot with memory, and
// on that instance. It is the name of the PVC with the memory. Pods don't have it.
const AnnotationResume = "vm.nodevirt.io/resume-from"

// AnnotationSuspend on a VirtualMachine, with the value true, has the running guest's memory saved, and
// the guest end. It stays until an instance goes on from the memory.
const AnnotationSuspend = "nodevirt.io/suspend"

// resumeVolume is the pod's volume of that PVC.
const resumeVolume = "nodevirt-checkpoint"

// addResume has the VM's container mount the PVC of a name with the memory from which the guest goes
// on; an empty name is for a guest that boots.
func addResume(s *corev1.PodSpec, pvc string) {
	if pvc == "" {
		return
	}
	s.Volumes = append(s.Volumes, corev1.Volume{Name: resumeVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
	}})
	c := &s.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: resumeVolume, MountPath: vmspec.CheckpointPath, ReadOnly: true})
}
