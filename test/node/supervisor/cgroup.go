package supervisor

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// Join moves a process, and so all that it will start, into a cgroup of every hierarchy. What
// a runtime makes relative to its own group is then below the node's too, and goes with it.
func Join(pid int, path string) error {
	m, err := manager.New(&cgroups.Cgroup{
		Path:      path,
		Resources: &cgroups.Resources{SkipDevices: true},
	})
	if err != nil {
		return fmt.Errorf("prepare cgroup %s: %w", path, err)
	}
	if err := m.Apply(pid); err != nil {
		return fmt.Errorf("join cgroup %s: %w", path, err)
	}
	return nil
}
