package bench

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// daemon is the process number of a node's component, as the machine sees it.
func (r *rig) daemon(name string) (pid int, err error) {
	all, err := r.Components()
	if err != nil {
		return 0, err
	}
	inside := 0
	for _, s := range all {
		if s.Name == name && !s.Ended {
			inside = s.PID
		}
	}
	list, err := processes(r.PID())
	if err != nil {
		return 0, err
	}
	for _, p := range list {
		if p.parent == r.PID() && innermost(p.pid) == inside {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("the node runs no %s", name)
}

// innermost is a process's number in its own PID namespace; 0 if it is gone.
func innermost(pid int) (inside int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "NSpid:" {
			_, _ = fmt.Sscan(fields[len(fields)-1], &inside)
		}
	}
	return inside
}
