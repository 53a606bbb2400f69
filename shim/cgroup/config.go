package cgroup

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
)

// ownParent is the parent of groups of pods without a cgroup parent, as crictl creates them.
const ownParent = "/nodevirt"

// scopePrefix is the prefix of systemd scopes, nodevirt-ID.scope. Those of containers have
// "cri-containerd".
const scopePrefix = "nodevirt"

// groupConfig returns the library's configuration of a container's group. The group is a sibling of
// those of the pod's containers, and the parent's name determines the driver. Both are the same as
// in getCgroupsPath of containerd's CRI server.
func groupConfig(parent, id, own string) (*cgroups.Cgroup, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{SkipDevices: true}}
	if parent == "" {
		parent = own
	}
	// The kubelet's systemd driver sends a.slice/b.slice/c.slice. The name c.slice implies the others.
	if base := path.Base(parent); strings.HasSuffix(base, ".slice") {
		config.Systemd = true
		config.Parent, config.ScopePrefix, config.Name = base, scopePrefix, id
		return config, nil
	}
	// A relative path would be relative to the shim's own group.
	config.Path = path.Join("/", parent, id)
	return config, nil
}

// checkID returns an error for a name that would place the group elsewhere than directly below its
// parent, or that would turn a scope into a slice.
func checkID(id string) error {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00\n") || strings.HasSuffix(id, ".slice") {
		return fmt.Errorf("open cgroup: container id %q is not a valid name of a group", id)
	}
	return nil
}
