package cgroup

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
)

// ownParent holds the groups of pods without a parent, which crictl makes.
const ownParent = "/nodevirt"

// scopePrefix begins the names of systemd scopes, as "cri-containerd" begins those of containers:
// nodevirt-ID.scope.
const scopePrefix = "nodevirt"

// groupConfig says which group a container has, in the library's terms. The group stands beside
// those of the pod's containers, and the kind of driver is told from the parent's name; both as in
// getCgroupsPath of containerd's CRI server.
func groupConfig(parent, id, own string) (*cgroups.Cgroup, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{SkipDevices: true}}
	if parent == "" {
		parent = own
	}
	// The kubelet's systemd driver sends a.slice/b.slice/c.slice, of which c.slice names them all.
	if base := path.Base(parent); strings.HasSuffix(base, ".slice") {
		config.Systemd = true
		config.Parent, config.ScopePrefix, config.Name = base, scopePrefix, id
		return config, nil
	}
	// A relative path would be taken from the shim's own group.
	config.Path = path.Join("/", parent, id)
	return config, nil
}

// checkID refuses a name that would put the group anywhere but directly under its parent, or turn a
// scope into a slice.
func checkID(id string) error {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00\n") || strings.HasSuffix(id, ".slice") {
		return fmt.Errorf("open cgroup: container id %q can't name a group", id)
	}
	return nil
}
