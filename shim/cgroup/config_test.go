package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

func TestGroupConfig(t *testing.T) {
	scope := &cgroups.Cgroup{
		Systemd: true, Parent: "kubepods-burstable-pod1.slice", ScopePrefix: "nodevirt", Name: "abc",
	}
	tests := map[string]struct {
		parent string
		want   *cgroups.Cgroup
	}{
		"cgroupfs":          {"/kubepods/burstable/pod1", &cgroups.Cgroup{Path: "/kubepods/burstable/pod1/abc"}},
		"cgroupfs, no root": {"kubepods/pod1/", &cgroups.Cgroup{Path: "/kubepods/pod1/abc"}},
		"leaving the tree":  {"../../etc", &cgroups.Cgroup{Path: "/etc/abc"}},
		"none":              {"", &cgroups.Cgroup{Path: "/nodevirt/abc"}},
		"root":              {"/", &cgroups.Cgroup{Path: "/abc"}},
		"systemd":           {"kubepods-burstable-pod1.slice", scope},
		"systemd, expanded": {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice", scope},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := groupConfig(test.parent, "abc", ownParent)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Resources = &cgroups.Resources{SkipDevices: true}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, id := range []string{"", ".", "..", "a/b", "../a", "a.slice", "a\nb"} {
		if g, err := Open("/pod", id); err == nil {
			t.Errorf("Open took the id %q for %s", id, g.Path())
		}
	}
}
