package subresources

import (
	"context"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// migrations begins migrations, and keeps instances on their nodes.
type migrations struct {
	objects client.Client
	found   interface {
		instances
		machines
	}
}

// migrate creates a migration of a virtual machine's instance. Admission decides on it.
func (m *migrations) migrate(ctx context.Context, c *call) error {
	options := kubevirt.MigrateOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	vm, err := m.found.machine(ctx, c)
	if err != nil {
		return err
	}
	vmi, err := m.found.instance(ctx, c)
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(vmi, vm) {
		return c.conflict("VirtualMachineInstance %s belongs to another owner", vmi.Name)
	}
	if vmi.Status.Phase == kubevirt.Unknown {
		return c.unheard(vmi)
	}
	if vmi.Status.Phase != kubevirt.Running {
		return c.conflict("VM is not running")
	}
	migration := &kubevirt.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, GenerateName: "kubevirt-migrate-vm-"},
		Spec:       kubevirt.VirtualMachineInstanceMigrationSpec{VMIName: vmi.Name, AddedNodeSelector: options.AddedNodeSelector},
	}
	if err := m.objects.Create(ctx, migration, &client.CreateOptions{DryRun: options.DryRun}); err != nil {
		return c.failed(err)
	}
	return c.accept()
}

// cancelEvacuation has an instance stay on its node after an eviction. A migration that
// has begun goes on.
func (m *migrations) cancelEvacuation(ctx context.Context, c *call) error {
	options := kubevirt.EvacuateCancelOptions{}
	if err := c.body(&options); err != nil {
		return err
	}
	vmi, err := m.found.instance(ctx, c)
	if err != nil {
		return err
	}
	if vmi.Status.EvacuationNodeName == "" {
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	if name := options.EvacuationNodeName; name != "" && name != vmi.Status.EvacuationNodeName {
		return c.conflict("VMI does not leave node %s, but node %s", name, vmi.Status.EvacuationNodeName)
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": vmi.ResourceVersion},
		"status":   map[string]any{"evacuationNodeName": nil},
	})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	err = m.objects.Status().Patch(ctx, vmi, client.RawPatch(types.MergePatchType, text),
		&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: options.DryRun}})
	if err != nil {
		return c.failed(err)
	}
	c.w.WriteHeader(http.StatusOK)
	return nil
}
