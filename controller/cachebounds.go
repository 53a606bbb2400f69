package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxParts bounds the volumes, containers and conditions that the cache keeps of a pod: no pod of a VM has as many.
const maxParts = vmspec.MaxDisks + vmspec.MaxFilesystems

// first returns the first elements of a list, as many as the cache keeps. Any user can create pods with the labels of VMs'
// pods, and with more elements. A list of metadata must stay whole, since patches of the controller replace such lists: the
// policy nodevirt-metadata bounds these.
func first[T any](all []T) []T { return slices.Clip(all[:min(len(all), maxParts)]) }

// keepAnnotations removes all annotations but some. Of keys that users set, the cache keeps no value that is longer than
// [bounds.CachedAnnotation]. The policy nodevirt-annotations reserves the other keys for the controller, so that their values
// stay whole.
func keepAnnotations(meta *metav1.ObjectMeta, users []string, reserved ...string) {
	all := meta.Annotations
	meta.Annotations = nil
	for _, key := range slices.Concat(users, reserved) {
		value, ok := all[key]
		if ok && (len(value) <= bounds.CachedAnnotation || slices.Contains(reserved, key)) {
			metav1.SetMetaDataAnnotation(meta, key, value)
		}
	}
}

// keepStatus keeps of a pod's status what reconcilers read.
func keepStatus(s *corev1.PodStatus) {
	s.EphemeralContainerStatuses, s.ResourceClaimStatuses, s.HostIPs, s.StartTime = nil, nil, nil, nil
	s.Conditions = first(slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized || c.Type == corev1.ContainersReady
	}))
	s.ContainerStatuses, s.InitContainerStatuses = keepContainers(s.ContainerStatuses), keepContainers(s.InitContainerStatuses)
}

// maxID bounds the IDs that the cache keeps of a container and its image: "containerd://" and 64 digits, and an image's name
// with its digest.
const maxID = 512

// keepContainers keeps of the containers' status what reconcilers read. Of the former end of a container, that is the reason.
func keepContainers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	all = first(all)
	for i, c := range all {
		kept := corev1.ContainerStatus{Name: c.Name, State: c.State, Resources: c.Resources}
		if len(c.ContainerID) <= maxID {
			kept.ContainerID = c.ContainerID
		}
		if len(c.ImageID) <= maxID {
			kept.ImageID = c.ImageID
		}
		if last := c.LastTerminationState.Terminated; last != nil {
			kept.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: last.Reason}
		}
		all[i] = kept
	}
	return all
}

// onlyStorage returns the one resource of PVCs.
func onlyStorage(of corev1.ResourceList) corev1.ResourceList {
	size, ok := of[corev1.ResourceStorage]
	if !ok {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceStorage: size}
}
