package vmi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

const (
	// reasonResize is the reason of a resize that the API server refuses.
	reasonResize = "FailedResize"
	// resizeAgain is the time until a refused resize is tried again: a quota may have room by then.
	resizeAgain = time.Minute
)

// resizer resizes the pods of running guests.
type resizer struct {
	client client.Client
	events events.EventRecorder
}

// resize asks the kubelet for what the spec of a running instance says beyond its pod's size. The kubelet
// and the node then give it to the guest. Wait is the time to the next try; 0 for none.
func (s *resizer) resize(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v *view) (wait time.Duration, err error) {
	if !v.running() || v.completed() || v.ended() || vmi.DeletionTimestamp != nil || v.pod.DeletionTimestamp != nil || Migrating(vmi) {
		return 0, nil
	}
	resources, changed := pod.Resize(v.pod, &vmi.Spec)
	if !changed {
		return 0, nil
	}
	wanted := v.pod.DeepCopy()
	for i := range wanted.Spec.Containers {
		if wanted.Spec.Containers[i].Name == pod.Container {
			wanted.Spec.Containers[i].Resources = resources
		}
	}
	patch := client.StrategicMergeFrom(v.pod.DeepCopy(), client.MergeFromWithOptimisticLock{})
	err = s.client.SubResource("resize").Patch(ctx, wanted, patch)
	switch {
	case err == nil:
		v.pod = wanted
		s.events.Eventf(vmi, wanted, corev1.EventTypeNormal, "Resized", "Resize", "Resized virtual machine pod %s", wanted.Name)
		return 0, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsBadRequest(err):
		v.unresized = fmt.Sprintf("resize pod %s: %s", wanted.Name, err)
		return resizeAgain, nil
	}
	return 0, fmt.Errorf("resize pod %s: %w", wanted.Name, err)
}

// limits are those that the kubelet has applied to the VM's container.
func (v view) limits() corev1.ResourceList {
	for i := range v.pod.Status.ContainerStatuses {
		if s := &v.pod.Status.ContainerStatuses[i]; s.Name == pod.Container && s.Resources != nil {
			return s.Resources.Limits
		}
	}
	for i := range v.pod.Spec.Containers {
		if c := &v.pod.Spec.Containers[i]; c.Name == pod.Container {
			return c.Resources.Limits
		}
	}
	return nil
}

// changes returns KubeVirt's conditions of vCPUs and memory that a running guest is still to get.
func changes(vmi *kubevirt.VirtualMachineInstance, v view) []cond {
	if !v.running() {
		return nil
	}
	c := cond{Status: corev1.ConditionTrue}
	if reason, message := v.stuck(); reason != "" {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
	}
	wants, has := pod.Wanted(&vmi.Spec), pod.SizeIn(&vmi.Spec, v.pod, v.limits())
	var all []cond
	if has.Sockets > 0 && wants.Sockets > has.Sockets {
		c.Type = kubevirt.VirtualMachineInstanceVCPUChange
		all = append(all, c)
	}
	if has.Memory > 0 && wants.Memory > has.Memory {
		c.Type = kubevirt.VirtualMachineInstanceMemoryChange
		all = append(all, c)
	}
	return all
}

// stuck returns why a resize of the pod does not go on; empty if nothing is known.
func (v view) stuck() (reason, message string) {
	if v.unresized != "" {
		return reasonResize, v.unresized
	}
	if c := conditionOf(v.pod, corev1.PodResizePending); c != nil && c.Status == corev1.ConditionTrue {
		return c.Reason, c.Message
	}
	if c := conditionOf(v.pod, corev1.PodResizeInProgress); c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonError {
		return c.Reason, c.Message
	}
	return "", ""
}
