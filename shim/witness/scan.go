package witness

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

// Scan is one look at the node's processes, which several questions share. Take it before the first of them: a
// QEMU that starts later is not in it.
type Scan struct {
	processes []Process
	// emulators are QEMUs of users that are not VMs': of another shim, another range of user IDs, or of the
	// node's administrator.
	emulators []Process
	files     func() (map[File][]Holder, error)
}

// Scan looks at the node's processes.
func (n Node) Scan() (*Scan, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	s := &Scan{processes: []Process{}}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, there, err := n.look(pid)
		switch {
		case err != nil:
			return nil, fmt.Errorf("list processes: %w", err)
		case !there:
		case n.has(p.UID):
			s.processes = append(s.processes, p)
		case p.Emulator:
			s.emulators = append(s.emulators, p)
		}
	}
	s.files = sync.OnceValues(s.open)
	return s, nil
}

// has reports whether a user ID is a VM's.
func (n Node) has(uid uint32) bool { return uid-n.FirstUID < n.UIDs }

// Processes returns the processes of VMs' users.
func (s *Scan) Processes() []Process { return s.processes }

// Users returns the user IDs of VMs that processes have.
func (s *Scan) Users() map[uint32]bool {
	used := map[uint32]bool{}
	for _, p := range s.processes {
		used[p.UID] = true
	}
	return used
}
