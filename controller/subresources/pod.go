package subresources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// podOf is an instance's own pod: one that merely has its name is not entered.
func (s *Server) podOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	found := new(corev1.Pod)
	err := s.objects.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Current(vmi)}, found)
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(found, vmi) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Current(vmi))
	}
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read the VM's pod: %w", err))
	}
	return found, nil
}

// running is the pod of the call's instance, which must run, and be the virtual machine's where the
// call is for one.
func (s *Server) running(ctx context.Context, c *call) (*kubevirt.VirtualMachineInstance, *corev1.Pod, error) {
	vmi, err := s.instance(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if c.resource == "virtualmachines" {
		vm, err := s.machine(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		if !metav1.IsControlledBy(vmi, vm) {
			return nil, nil, c.conflict("VirtualMachineInstance %s belongs to another owner", vmi.Name)
		}
	}
	if vmi.Status.Phase != kubevirt.Running {
		return nil, nil, c.notRunning(vmi)
	}
	found, err := s.podOf(ctx, vmi)
	if apierrors.IsNotFound(err) {
		return nil, nil, c.notRunning(vmi)
	}
	return vmi, found, err
}

// notRunning refuses a call that needs a guest. As with KubeVirt, the status of a console or a display of an instance
// that has not ended is 400: after no other do clients try again until their timeout.
func (c *call) notRunning(vmi *kubevirt.VirtualMachineInstance) error {
	const sentence = "VMI is not running"
	if (c.subresource == "console" || c.subresource == "vnc") && !vmi.IsFinal() {
		return apierrors.NewBadRequest(sentence)
	}
	return c.conflict(sentence)
}

// control presses a button of the machine in a pod, and returns what it says.
func (s *Server) control(ctx context.Context, p *corev1.Pod, name string, arguments ...string) ([]byte, error) {
	return s.pods.Control(ctx, p, maxAnswer, name, arguments...)
}

// maxAnswer bounds what a node says to a button, in bytes: the picture of a large display.
const maxAnswer = 64 << 20
