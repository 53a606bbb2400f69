package measures

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshot "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
)

// objects are what a scrape reports of. They are the cache's own and must not be changed.
type objects struct {
	config     config.Config
	machines   kubevirt.VirtualMachineList
	instances  kubevirt.VirtualMachineInstanceList
	migrations kubevirt.VirtualMachineInstanceMigrationList
	snapshots  snapshot.VirtualMachineSnapshotList
	pvcs       corev1.PersistentVolumeClaimList

	byKey map[client.ObjectKey]*kubevirt.VirtualMachine // the machines; see machine
}

// machine returns a VM, and nil if there is none.
func (o *objects) machine(key client.ObjectKey) *kubevirt.VirtualMachine {
	if o.byKey == nil {
		o.byKey = make(map[client.ObjectKey]*kubevirt.VirtualMachine, len(o.machines.Items))
		for i := range o.machines.Items {
			o.byKey[client.ObjectKeyFromObject(&o.machines.Items[i])] = &o.machines.Items[i]
		}
	}
	return o.byKey[key]
}

// read reads the objects from a cache.
func read(ctx context.Context, c client.Reader, source config.Source) (*objects, error) {
	var all objects
	var err error
	if all.config, err = source.Read(ctx); err != nil {
		return nil, err
	}
	for _, list := range []client.ObjectList{&all.machines, &all.instances, &all.migrations, &all.snapshots, &all.pvcs} {
		if err := c.List(ctx, list, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return &all, nil
}
