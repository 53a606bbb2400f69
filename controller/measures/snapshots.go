package measures

import (
	"context"

	snapshots "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// taken reports VirtualMachineSnapshots.
type taken struct {
	set

	client client.Reader
}

const snapshotTaken = "vmsnapshot_succeeded_timestamp_seconds"

func newSnapshots(c client.Reader) taken {
	s := taken{set{}, c}
	s.add(snapshotTaken, "When a snapshot that is complete was taken, in seconds since the epoch.", "name", "snapshot_name", "namespace")
	return s
}

func (s taken) collect(ctx context.Context, send sender) error {
	var all snapshots.VirtualMachineSnapshotList
	if err := list(ctx, s.client, &all); err != nil {
		return err
	}
	for i := range all.Items {
		one := &all.Items[i]
		if of := one.Status; of != nil && of.Phase == snapshots.Succeeded && of.CreationTime != nil {
			send(s.set[snapshotTaken], float64(of.CreationTime.Unix()), one.Spec.Source.Name, one.Name, one.Namespace)
		}
	}
	return nil
}
