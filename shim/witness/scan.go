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
	node      Node
	processes []Process
	// others are strangers with a VM's user ID, and QEMUs of users that are not VMs': of another shim, another range
	// of user IDs, of the node's administrator, or in an ordinary container.
	others []Process
	files  func() (map[File][]Holder, error)
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
		case n.has(p.UID) && !p.Stranger:
			s.processes = append(s.processes, p)
		default:
			s.others = append(s.others, p)
		}
	}
	s.node, s.files = n, sync.OnceValues(s.open)
	return s, nil
}

// has reports whether a user ID is a VM's.
func (n Node) has(uid uint32) bool { return uid-n.FirstUID < n.UIDs }

// Processes returns the processes of VMs' users, without strangers.
func (s *Scan) Processes() []Process { return s.processes }

// Users returns the user IDs of VMs that processes have, also those of strangers.
func (s *Scan) Users() map[uint32]bool {
	used := map[uint32]bool{}
	for _, p := range s.all() {
		if s.node.has(p.UID) {
			used[p.UID] = true
		}
	}
	return used
}
