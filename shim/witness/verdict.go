package witness

// Presence says whether processes of a VM's guest are on the node.
type Presence int

// The answers of the node's processes. Unknown means that /proc could not be read.
const (
	Unknown Presence = iota
	Present
	Absent
)

// Word is what libvirt or the shim's record says of a VM.
type Word int

// The words of a witness. Silent means no answer: libvirtd does not run, or the record is lost or cannot
// be used.
const (
	Silent Word = iota
	Running
	Ended
)

// Testimony is what the witnesses of one VM say.
type Testimony struct {
	Processes Presence
	// Libvirt is Ended for a domain that is shut off, and for one that libvirt does not know.
	Libvirt Word
	// Record is Running for a VM that was started, also if its start has not ended.
	Record Word
}

// Verdict says whether a VM runs, and so what may be done.
type Verdict int

// The verdicts. The zero value allows nothing.
const (
	// Disputed: the witnesses disagree, or the processes are not known.
	Disputed Verdict = iota
	// Runs: the VM runs. Nothing of it is released.
	Runs
	// Over: the VM does not run. It may be released, and started.
	Over
)

// Judge returns the verdict on a VM.
func Judge(t Testimony) Verdict {
	switch t.Processes {
	case Present:
		if t.Libvirt == Ended || t.Record != Running {
			return Disputed
		}
		return Runs
	case Absent:
		if t.Libvirt == Ended {
			return Over
		}
	}
	return Disputed
}

// MayRelease reports whether what the VM uses may be deleted or handed out.
func (v Verdict) MayRelease() bool { return v == Over }
