package record

import "time"

// BackupState is the phase of a backup of a running VM's disks.
//
//	writing ──▶ completed
//	   │
//	   └──▶ failed
//
// The state is on disk before the files are created: a shim that finds a backup writing follows
// QEMU's jobs, or removes the files.
type BackupState string

// The states of a backup.
const (
	BackupWriting   BackupState = "writing"
	BackupCompleted BackupState = "completed"
	BackupFailed    BackupState = "failed"
)

// Backup is a backup of a VM's disks to files of a volume.
type Backup struct {
	State BackupState `json:"state"`
	Name  string      `json:"name"`
	// Volume is the volume's name, Folder its path on the node, Dir the folder of the files in it.
	Volume string       `json:"volume"`
	Folder string       `json:"folder"`
	Dir    string       `json:"dir"`
	Disks  []BackupDisk `json:"disks"`
	// Checkpoint is the backup's own, Since the one that it follows; empty for none. Keep are those
	// of other backups.
	Checkpoint string   `json:"checkpoint,omitempty"`
	Since      string   `json:"since,omitempty"`
	Keep       []string `json:"keep,omitempty"`
	// Quiesce is whether the guest's file systems were frozen, in the words of package order.
	Quiesce string `json:"quiesce,omitempty"`
	// Pull says that clients read the disks, and the files keep what the guest overwrites meanwhile.
	// Begun says that QEMU has begun then, Finished that the readers are done, and Pulled that all they
	// got is good.
	Pull     bool `json:"pull,omitempty"`
	Begun    bool `json:"begun,omitempty"`
	Finished bool `json:"finished,omitempty"`
	Pulled   bool `json:"pulled,omitempty"`
	// Readers is the container that reads, Socket the folder of its socket on the node.
	Readers string `json:"readers,omitempty"`
	Socket  string `json:"socket,omitempty"`
	// Renaming says that the files are complete, and get their names.
	Renaming bool `json:"renaming,omitempty"`
	// Cancelled says that the backup is to fail. Ending says that a pull backup gets no more readers.
	Cancelled bool `json:"cancelled,omitempty"`
	Ending    bool `json:"ending,omitempty"`

	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"`
	// Message is why the backup failed, Warning what is not as ordered.
	Message string `json:"message,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// BackupDisk is a disk in a backup.
type BackupDisk struct {
	// Name is the disk's, Target libvirt's name of it, Size its size in bytes.
	Name   string `json:"name"`
	Target string `json:"target,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// File is the name of the disk's file.
	File string `json:"file"`
}

// BackingUp reports whether the VM's disks are being copied.
func (r Container) BackingUp() bool {
	return r.Backup != nil && r.Backup.State == BackupWriting
}

// WithBackup returns the record with a backup. The record that others read stays as it is.
func (r Container) WithBackup(b Backup) Container {
	r.Backup = &b
	return r
}
