package diskguard

// Row names a right to delete a PVC: see [Table].
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
	// StateMoved deletes the persistent state that has moved to another PVC with its guest, or has not.
	StateMoved Row = "persistent state has moved"
	// MemoryResumed deletes the memory of a suspended guest.
	MemoryResumed Row = "a suspended guest has resumed"
)

// Entry is a place of the controller that may delete, overwrite or disown a disk of a user.
type Entry struct {
	// Place is the function, as PACKAGE.TYPE.FUNCTION, and Verb what it does: delete, patch, or the method of a DataVolume.
	Place, Verb string
	// What is deleted or written, and When.
	What, When string
	// Checked is what is true before.
	Checked string
	// Test is the test that holds the conditions, as PACKAGE.NAME.
	Test string
}

// Table returns who may delete or overwrite a disk of a user, when, and what is checked before. A test compares it with
// the controller's source: a new place needs a new entry, with its test. All deletions of PVCs have the UID and the version
// that was read as preconditions.
func Table() []Entry {
	const (
		bound  = "the restored disk is bound to its PersistentVolume, which has the size and the mode; no pod, VM, instance, copy or export uses the former"
		marked = "the PVC has the mark of this restore"
		owned  = "the PVC is the VM's own"
	)
	return append([]Entry{
		{"restore.replacer.removeFormer", "delete", "the PVC that a restored one replaces", "policy InPlace, all restored disks bound", bound, "restore.TestInPlaceOfOthers"},
		{"restore.replacer.removeFormer", "MarkFilled", "its DataVolume, so that CDI does not fill the next PVC", "before that", bound, "restore.TestInPlace"},
		{"restore.replacer.proceed", "delete", "the temporary PVC", "the former PVC is gone", marked + "; its PersistentVolume is kept", "restore.TestInPlaceKeepsTheFormer"},
		{"restore.replacer.keep", "patch", "the PersistentVolume of the restored disk: Retain", "before the former PVC is deleted",
			"the temporary PVC and the PersistentVolume name each other by UID", "restore.TestForgedRecord"},
		{"restore.replacer.reserve", "patch", "the PersistentVolume of the restored disk: its PVC", "both PVCs are gone",
			"it is reserved for a PVC of the restore, or for none", "restore.TestForgedRecord"},
		{"restore.replacer.giveBack", "patch", "the PersistentVolume of the restored disk: its own reclaim policy", "the PVC of the name is bound to it",
			"the PersistentVolume has the restore's mark", "restore.TestInPlaceKeepsTheFormer"},
		{"restore.volumes.discard", "delete", "the PVCs of a restore", "the restore is deleted, and has not created its VM", marked, "restore.TestDeletedCopy"},
		{"restore.owners.deleteDisk", "delete", "the disk of a former template", "the restored disks are bound, and the VM has its spec",
			owned + "; nothing else uses it", "restore.TestObsoleteDiskOfAnother"},
		{"restore.owners.deleteDisk", "DeleteOwned", "its DataVolume", "the same", "the DataVolume is the VM's own; nothing else uses its PVC", "restore.TestObsoleteDiskOfAnother"},
		{"restore.owners.deleteDisk", "ChangeOwners", "the owner of its DataVolume", "something else uses it", "nothing is deleted", "restore.TestObsoleteDiskOfAnother"},
		{"restore.owners.deleteDisk", "patch", "its owner", "something else uses it", "nothing is deleted", "restore.TestObsoleteDiskOfAnother"},
		{"restore.owners.dropState", "delete", "the former persistent state", "the restored state is bound", owned, "restore.TestState"},
		{"restore.owners.dropState", "patch", "the label of persistent state that is not the VM's own", "the same", "nothing is deleted", "restore.TestState"},
		{"restore.owners.ownPVC", "patch", "the owner of a restored PVC, or its annotation for CDI", "the VM has its spec", marked, "restore.TestDataVolume"},
		{"vmi.states.remove", "delete", "persistent state", "the guest has moved to the other PVC, or the migration has failed",
			"the migration has ended; the PVC is of the same owner", "vmi.TestStateMoves"},
		{"vmi.states.settle", "patch", "the label of persistent state", "the guest has moved", "nothing is deleted", "vmi.TestStateMoves"},
		{"vmi.pvcAccess.markFilled", "patch", "the annotation that a PVC is filled", "the guest runs", "nothing is deleted", "vmi.TestUnfilledPVC"},
	}, vmEntries()...)
}

// vmEntries are those of VirtualMachines and pools.
func vmEntries() []Entry {
	return []Entry{
		{"vm.suspends.sweep", "delete", "the memory of a guest that ended before it was suspended", "the VM has no instance, and nothing to resume",
			"the PVC is the VM's own; the VM, read from the API server, resumes from none", "vm.TestNothingToSuspend"},
		{"vm.suspends.forget", "delete", "the memory of a suspended guest", "the guest has resumed, or its VM boots",
			"the PVC is the VM's own, and its name is that of such memory", "vm.TestSuspend"},
		{"vm.releases.owner", "ChangeOwners", "nothing: it reads the owners of a DataVolume", "a VM names its PVC", "nothing is written", "vm.TestFormerOwner"},
		{"vm.releases.release", "patch", "the owner of a PVC", "another VM uses it, and its owner is deleted or does not name it", "nothing is deleted", "vm.TestDeletedOwner"},
		{"vm.releases.release", "ChangeOwners", "the owner of a DataVolume", "the same", "nothing is deleted", "vm.TestDeletedOwner"},
		{"vm.Reconciler.correctOrigin", "patch", "the image that a PVC becomes a copy of", "the VM's template names another image",
			"the VM controls the PVC, and no node has filled it", "vm.TestCorrectedImage"},
		{"vm.dumps.annotateDump", "patch", "the annotation of a memory dump's PVC", "a dump has ended", "nothing is deleted", "vm.TestMemoryDump"},
		{"pool.disks.preservePVC", "ChangeOwners", "the owner of a DataVolume", "a pool's VM is removed, and keeps its state", "nothing is deleted", "pool.TestStatePreservationOfCDI"},
		{"pool.disks.adopt", "ChangeOwners", "the owner of a DataVolume", "the pool's next VM takes it", "the PVC has the pool's mark", "pool.TestStatePreservationOfCDI"},
		{"pool.disks.owners", "ChangeOwners", "nothing: it reads the owners of a DataVolume", "a pool's VM is removed or made", "nothing is written", "pool.TestStatePreservationOfCDI"},
		{"pool.disks.changePVC", "patch", "the owner and the mark of a PVC", "a pool's VM is removed or made", "the PVC is the VM's own, or has the pool's mark; one that its user owns gets or loses a mark alone", "pool.TestPreservedAdded"},
	}
}
