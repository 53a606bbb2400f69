package measures

import (
	"context"
	"fmt"
	"sync"

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

	machine  func(client.ObjectKey) *kubevirt.VirtualMachine         // nil if there is none
	instance func(client.ObjectKey) *kubevirt.VirtualMachineInstance // nil if there is none
}

// byKey returns a function that looks up a list's items. The first call makes its table: most scrapes need none.
func byKey[T any, P interface {
	*T
	client.Object
}](items *[]T) func(client.ObjectKey) P {
	table := sync.OnceValue(func() map[client.ObjectKey]P {
		all := make(map[client.ObjectKey]P, len(*items))
		for i := range *items {
			all[client.ObjectKeyFromObject(P(&(*items)[i]))] = &(*items)[i]
		}
		return all
	})
	return func(key client.ObjectKey) P { return table()[key] }
}

// read reads the objects from a cache.
func read(ctx context.Context, c client.Reader, source config.Source) (*objects, error) {
	var all objects
	all.machine, all.instance = byKey(&all.machines.Items), byKey(&all.instances.Items)
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
