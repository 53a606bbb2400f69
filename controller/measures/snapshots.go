package measures

import snapshot "kubevirt.io/api/snapshot/v1beta1"

// taken reports VirtualMachineSnapshots.
type taken struct{ set }

const snapshotTaken = "vmsnapshot_succeeded_timestamp_seconds"

func newSnapshots() taken {
	s := taken{set{}}
	s.add(snapshotTaken, "When a snapshot that is complete was taken, in seconds since the epoch.", "name", "snapshot_name", "namespace")
	return s
}

func (s taken) collect(all *objects, send sender) {
	for i := range all.snapshots.Items {
		one := &all.snapshots.Items[i]
		if of := one.Status; of != nil && of.Phase == snapshot.Succeeded && of.CreationTime != nil {
			send(s.set[snapshotTaken], float64(of.CreationTime.Unix()), one.Spec.Source.Name, one.Name, one.Namespace)
		}
	}
}
