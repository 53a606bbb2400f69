package diskguard

// Row names one right to delete a PVC: see [Table].
type Row string

// The rights to delete a PVC.
const (
	// RestoreReplaced deletes the PVC in whose place a restored one comes.
	RestoreReplaced Row = "a restore in place replaces a disk"
	// RestoreTemporary deletes the PVC that had the restored disk until its name was free.
	RestoreTemporary Row = "a restore removes its temporary PVC"
	// RestoreDiscarded deletes PVCs of a restore that is deleted before its VM exists.
	RestoreDiscarded Row = "a restore is given up"
	// RestoreObsolete deletes the disk of a template that the restored VM does not have.
	RestoreObsolete Row = "a restore removes a disk of a former template"
	// RestoreState deletes the persistent state that a restored VM had before.
	RestoreState Row = "a restore replaces persistent state"
)
