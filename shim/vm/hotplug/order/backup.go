package order

import "time"

// The machine controls of backups. Each takes one argument, the JSON of the type beside it, and
// answers with the [Backup] as it is then. Each may be repeated.
const (
	BackUp       = "backup"        // BackupFiles
	BackupStatus = "backup-status" // Name, of the backup
	BackupCancel = "backup-cancel" // Name, of the backup
	BackupServe  = "backup-serve"  // BackupReaders
	BackupFinish = "backup-finish" // Name, of a pull backup, which is then complete
)

// BackupFiles is an order to copy disks of a running VM to new qcow2 files.
type BackupFiles struct {
	// Name is the backup's, which no other backup of the VM has.
	Name string `json:"name"`
	// Volume is the name of the volume for the files, which Container mounts.
	Volume    string `json:"volume"`
	Container string `json:"container"`
	// Folder is the files' folder in the volume, of at most two elements.
	Folder string       `json:"folder"`
	Disks  []BackupFile `json:"disks"`
	// Checkpoint names the moment of the backup, for a later Since; empty for none.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Since is the checkpoint whose later changes the backup has to have; empty for all content. If
	// the node does not know all changes since then, the backup has all content.
	Since string `json:"since,omitempty"`
	// Keep are the other checkpoints that a later backup may follow. The node forgets the rest.
	Keep []string `json:"keep,omitempty"`
	// Quiesce has the guest's agent freeze the file systems when the backup begins.
	Quiesce bool `json:"quiesce,omitempty"`
	// Pull has the files keep only what the guest overwrites, until the backup is finished: readers get
	// the disks as they were when the backup began. No file stays.
	Pull bool `json:"pull,omitempty"`
}

// BackupReaders is an order to let a container read the disks of a pull backup, by NBD: the container
// mounts an emptyDir at a path that ends in [SocketVolume], where the node creates [SocketFile]. NBD
// names the disks as the order for the backup did. A former container loses its connections.
type BackupReaders struct {
	// Name is the backup's.
	Name      string `json:"name"`
	Container string `json:"container"`
}

// The volume and the file of the socket of a pull backup's readers, and the NBD context of what has
// changed since the checkpoint that the backup follows.
const (
	SocketVolume   = "backup-socket"
	SocketFile     = "nbd.sock"
	ChangesContext = "qemu:dirty-bitmap:nodevirt-changes"
)

// BackupFile is a disk with the name of its file, which ends in [BackupSuffix].
type BackupFile struct {
	Disk string `json:"disk"`
	File string `json:"file"`
}

// BackupSuffix is the end of the names of backups' files. MaxBackupDisks and MaxCheckpoints bound a
// backup's disks, and the checkpoints of a VM.
const (
	BackupSuffix   = ".qcow2"
	MaxBackupDisks = 64
	MaxCheckpoints = 16
)

// BackupState is the state of a backup.
type BackupState string

// The states of a backup. The node has the volume open only while it writes, or while a pull backup is
// ready for readers, and files have their names only once all are complete.
const (
	BackupNone      BackupState = "none"
	BackupWriting   BackupState = "writing"
	BackupReady     BackupState = "ready"
	BackupCompleted BackupState = "completed"
	BackupFailed    BackupState = "failed"
)

// Quiesce is whether the guest's file systems were frozen when a backup began.
type Quiesce string

// The outcomes of freezing a guest's file systems.
const (
	QuiesceSucceeded Quiesce = "succeeded"
	QuiesceFailed    Quiesce = "failed"
	QuiesceSkipped   Quiesce = "skipped"
)

// BackedUp is a disk in a backup, with libvirt's name of it.
type BackedUp struct {
	Disk   string `json:"disk"`
	Target string `json:"target"`
}

// Backup is what the node knows of the last backup of a VM.
type Backup struct {
	Name  string      `json:"name"`
	State BackupState `json:"state"`
	// Incremental says that the files have only what has changed since the checkpoint of the order.
	Incremental bool       `json:"incremental,omitempty"`
	Disks       []BackedUp `json:"disks,omitempty"`
	Quiesce     Quiesce    `json:"quiesce,omitempty"`
	// Start and End are when the backup began and ended.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Readers is the container that can read a pull backup.
	Readers string `json:"readers,omitempty"`
	// Message is why the backup failed; Warning what is not as ordered with one that has not.
	Message string `json:"message,omitempty"`
	Warning string `json:"warning,omitempty"`
}
