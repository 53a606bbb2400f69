package subresources

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// expand is a virtual machine with all that its instance type and preference stand for.
func (s *Server) expand(ctx context.Context, c *call) error {
	vm, err := s.machine(ctx, c)
	if err != nil {
		return err
	}
	return c.expanded(vm)
}

// expandGiven is expand for a virtual machine in the request, which need not exist.
func (s *Server) expandGiven(_ context.Context, c *call) error {
	vm := new(kubevirt.VirtualMachine)
	if err := c.body(vm); err != nil {
		return err
	}
	if vm.Spec.Template == nil {
		return apierrors.NewBadRequest("Object is not a valid VirtualMachine")
	}
	return c.expanded(vm)
}

func (c *call) expanded(vm *kubevirt.VirtualMachine) error {
	if vm.Spec.Instancetype != nil || vm.Spec.Preference != nil {
		return missing("nodevirt knows no instance types and preferences")
	}
	vm.TypeMeta = metav1.TypeMeta{Kind: "VirtualMachine", APIVersion: kubevirt.GroupVersion.String()}
	vm.ManagedFields = nil
	return c.reply(vm)
}
