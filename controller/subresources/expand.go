package subresources

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// expander fills in instance types and preferences.
type expander struct {
	objects client.Client
	found   machines
}

// expand is a virtual machine with all that its instance type and preference stand for.
func (e *expander) expand(ctx context.Context, c *call) error {
	vm, err := e.found.machine(ctx, c)
	if err != nil {
		return err
	}
	return e.expanded(ctx, c, vm)
}

// expandGiven is expand for a virtual machine in the request, which need not exist.
func (e *expander) expandGiven(ctx context.Context, c *call) error {
	vm := new(kubevirt.VirtualMachine)
	if err := c.body(vm); err != nil {
		return err
	}
	if vm.Spec.Template == nil {
		return apierrors.NewBadRequest("Object is not a valid VirtualMachine")
	}
	if m := vm.Spec.Instancetype; m != nil && m.InferFromVolume != "" {
		return apierrors.NewBadRequest("spec.instancetype.inferFromVolume: only a VM that is created infers its types; use name")
	}
	if vm.Namespace != "" && vm.Namespace != c.namespace {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"VM namespace must be empty or %s", c.namespace))
	}
	vm.Namespace = c.namespace
	return e.expanded(ctx, c, vm)
}

func (e *expander) expanded(ctx context.Context, c *call, vm *kubevirt.VirtualMachine) error {
	types, err := instancetype.Find(ctx, e.objects, vm)
	if err == nil && vm.Spec.Template != nil {
		err = types.Expand(vm.Spec.Template)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	vm.Spec.Instancetype, vm.Status.InstancetypeRef = nil, nil
	vm.Spec.Preference, vm.Status.PreferenceRef = nil, nil
	vm.TypeMeta = metav1.TypeMeta{Kind: "VirtualMachine", APIVersion: kubevirt.GroupVersion.String()}
	vm.ManagedFields = nil
	return c.reply(vm)
}
