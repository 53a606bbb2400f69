package order

// The machine controls that save a guest's memory to a volume. Each takes one argument, the JSON
// of the type beside it, and answers with the [Saved] as it is then. Each may be repeated.
//
//	none ──▶ writing ──▶ held ──▶ completed
//	            │          │
//	            └──────────┴──▶ failed
//
// The guest is paused while the node writes and holds. It goes on when [MemorySaveEnd] ends the
// hold, and by itself if no order comes for [SaveLease]: the save has failed then. A save without
// disks is never held, nor is one that suspends the guest: its disks are all on volumes, and it ends
// the guest, whose container has the reason Suspended then.
const (
	MemorySave    = "memory-save"     // Save
	MemorySaveEnd = "memory-save-end" // Name, of the volume
)

// Save is an order to save the guest's memory and what it wrote to its node, or to hold a guest
// that is being saved.
type Save struct {
	// Volume is the name of the volume, which Container mounts. It names the save, too.
	Volume    string `json:"volume"`
	Container string `json:"container"`
	// Disks are those on volumes, of which the caller takes snapshots while the guest is held.
	Disks []string `json:"disks,omitempty"`
	// Begin begins a save if the node knows none to the volume.
	Begin bool `json:"begin,omitempty"`
	// Suspend ends the guest once its memory is saved. If that fails, the guest goes on.
	Suspend bool `json:"suspend,omitempty"`
}

// SaveState is the state of a save.
type SaveState string

// The states of a save. The node reports a failed one once, and forgets it then.
const (
	SaveNone      SaveState = "none"
	SaveWriting   SaveState = "writing"
	SaveHeld      SaveState = "held"
	SaveCompleted SaveState = "completed"
	SaveFailed    SaveState = "failed"
)

// Saved is what the node knows of a save.
type Saved struct {
	Volume string    `json:"volume"`
	State  SaveState `json:"state"`
	// Message is why the save failed.
	Message string `json:"message,omitempty"`
}
