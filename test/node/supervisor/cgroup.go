package supervisor

import (
	"fmt"
	"os"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// join moves this process, and so all that it will start, into a cgroup of every hierarchy. What
// a runtime makes relative to its own group is then below the node's too, and goes with it.
func join(path string) error {
	m, err := manager.New(&cgroups.Cgroup{
		Path:      path,
		Resources: &cgroups.Resources{SkipDevices: true},
	})
	if err != nil {
		return fmt.Errorf("prepare cgroup %s: %w", path, err)
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return fmt.Errorf("join cgroup %s: %w", path, err)
	}
	return nil
}
