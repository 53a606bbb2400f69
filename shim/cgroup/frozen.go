package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Frozen returns the command that lets the group's processes run if they are frozen, in this group or
// in one above it; empty if they are not. A group that does not exist is not frozen.
func (g *Group) Frozen() (thaw string, err error) {
	path, file, running := g.paths["freezer"], "freezer.state", string(cgroups.Thawed)
	if path == "" {
		path, file, running = g.paths[""], "cgroup.freeze", "0"
	}
	if path == "" {
		return "", nil
	}
	// The highest frozen group is the one to thaw: those below it follow on v1, and are not
	// frozen by themselves on v2.
	for ; path != "/"; path = filepath.Dir(path) {
		text, err := os.ReadFile(filepath.Join(path, file))
		if errors.Is(err, fs.ErrNotExist) {
			break // the root has no such file
		}
		if err != nil {
			return thaw, fmt.Errorf("read whether a cgroup is frozen: %w", err)
		}
		if strings.TrimSpace(string(text)) != running { // v1 says FREEZING until every process is stopped
			thaw = fmt.Sprintf("echo %s > %s", running, filepath.Join(path, file))
		}
	}
	return thaw, nil
}
