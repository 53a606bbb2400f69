package record

import "time"

// DumpState is the phase of a dump of a guest's memory.
//
//	writing ──▶ completed
//	   │
//	   └──▶ failed
//
// The state is on disk before the file is created: a shim that finds a dump writing removes the
// file.
type DumpState string

// The states of a dump.
const (
	DumpWriting   DumpState = "writing"
	DumpCompleted DumpState = "completed"
	DumpFailed    DumpState = "failed"
)

// MemoryDump is a dump of a guest's memory to a file of a volume.
type MemoryDump struct {
	State DumpState `json:"state"`
	// Volume is the volume's name, Folder its path on the node, File the dump's name there.
	Volume string `json:"volume"`
	Folder string `json:"folder"`
	File   string `json:"file"`

	Start time.Time `json:"start"`
	End   time.Time `json:"end,omitzero"`
	// Message is why the dump failed.
	Message string `json:"message,omitempty"`
}

// Dumping reports whether the guest's memory is being written.
func (r Container) Dumping() bool {
	return r.MemoryDump != nil && r.MemoryDump.State == DumpWriting
}

// WithMemoryDump returns the record with a dump. The record that others read stays as it is.
func (r Container) WithMemoryDump(m MemoryDump) Container {
	r.MemoryDump = &m
	return r
}
