package subresources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// finder reads what a call is about.
type finder struct{ objects client.Client }

// instances returns the instance of a call; [finder].
type instances interface {
	instance(ctx context.Context, c *call) (*kubevirt.VirtualMachineInstance, error)
}

// machines returns the virtual machine of a call; [finder].
type machines interface {
	machine(ctx context.Context, c *call) (*kubevirt.VirtualMachine, error)
}

// pods returns the own pods of instances; [finder].
type pods interface {
	podOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error)
}

// guests returns the running instance of a call, and its pod; [finder].
type guests interface {
	running(ctx context.Context, c *call) (*kubevirt.VirtualMachineInstance, *corev1.Pod, error)
}

func (f *finder) machine(ctx context.Context, c *call) (*kubevirt.VirtualMachine, error) {
	vm := new(kubevirt.VirtualMachine)
	return vm, f.get(ctx, c, "virtualmachines", vm)
}

// instance is the call's, of a virtual machine the one that it has.
func (f *finder) instance(ctx context.Context, c *call) (*kubevirt.VirtualMachineInstance, error) {
	vmi := new(kubevirt.VirtualMachineInstance)
	return vmi, f.get(ctx, c, "virtualmachineinstances", vmi)
}

func (f *finder) get(ctx context.Context, c *call, resource string, into client.Object) error {
	err := f.objects.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, into)
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: resource}, c.name)
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("read %s %s/%s: %w", resource, c.namespace, c.name, err))
	}
	return nil
}

// podOf is an instance's own pod: one that merely has its name is not entered.
func (f *finder) podOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	found := new(corev1.Pod)
	err := f.objects.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Current(vmi)}, found)
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
func (f *finder) running(ctx context.Context, c *call) (*kubevirt.VirtualMachineInstance, *corev1.Pod, error) {
	vmi, err := f.instance(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if c.resource == "virtualmachines" {
		vm, err := f.machine(ctx, c)
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
	found, err := f.podOf(ctx, vmi)
	if apierrors.IsNotFound(err) {
		return nil, nil, c.notRunning(vmi)
	}
	return vmi, found, err
}
