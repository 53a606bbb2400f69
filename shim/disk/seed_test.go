package disk

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/isofs"
)

// fakeHooks append the source of the disk to user data, and fail without user data.
type fakeHooks struct{}

func (fakeHooks) PreCloudInitIso(_ context.Context, _ record.Container, source vmspec.Source, s vmspec.Seed) (vmspec.Seed, error) {
	if s.UserData == "" {
		return s, errors.New("a hook failed")
	}
	s.UserData += string(source)
	return s, nil
}

// TestSeedHooks: sidecars change the disk of their VM alone.
func TestSeedHooks(t *testing.T) {
	n := newNode(t)
	d := vmspec.Disk{Name: "d", Source: vmspec.SourceConfigDrive, ReadOnly: true}
	read := func(r record.Container) string {
		t.Helper()
		if err := n.Maker.Create(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		return isofs.Read(t, filepath.Join(n.dir, "containers", r.ID, "seed.iso")).Files["openstack/latest/user_data"]
	}
	without := n.container(t, "a", d)
	if got := read(without); got != "x" {
		t.Errorf("user data %q", got)
	}
	with := n.container(t, "b", d)
	with.Spec.Hooks = &vmspec.Hooks{}
	if got := read(with); got != "x"+string(vmspec.SourceConfigDrive) {
		t.Errorf("user data %q", got)
	}
	with.Spec.Seed = &vmspec.Seed{}
	if err := n.Maker.Create(t.Context(), with, nil); err == nil {
		t.Error("the disk is made although a hook failed")
	}
}
