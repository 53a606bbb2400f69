package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestWriteDevices: the config drive of a VM with tags has room for the devices, and shows them to a QEMU that
// has it open. Its size does not change.
func TestWriteDevices(t *testing.T) {
	n := newNode(t)
	drive := vmspec.Disk{Name: "d", Source: vmspec.SourceConfigDrive, ReadOnly: true}
	r := n.container(t, "a", drive)
	r.Spec.Interfaces = []vmspec.Interface{{Name: "lan", Tag: "lan"}}
	r.Spec.Seed = &vmspec.Seed{UserData: "x", MetaData: `{"uuid":"u"}`, NetworkConfig: `{"uuid":"u"}`}
	if err := n.Maker.Create(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dir, "containers", r.ID, "seed.iso")
	before := isofs.Read(t, path).Files
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, address := range []string{"0000:01:00.0", "0000:02:00.0"} { // the last one stays
		err := n.Attachments.WriteDevices(r, []vmspec.TaggedDevice{{Type: vmspec.DeviceNIC, Bus: "pci", Address: address, Tags: []string{"lan"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	const name = "openstack/latest/meta_data.json"
	after := isofs.Read(t, fmt.Sprintf("/proc/self/fd/%d", open.Fd())).Files
	want := `{"devices":[{"type":"nic","bus":"pci","address":"0000:02:00.0","tags":["lan"]}],"uuid":"u"}`
	if got := after[name]; strings.TrimSpace(got) != want || len(got) != len(before[name]) {
		t.Errorf("meta data %q", got)
	}
	delete(before, name)
	delete(after, name)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the other files (-before +after):\n%s", diff)
	}

	without := n.container(t, "b", drive)
	if err := n.Maker.Create(t.Context(), without, nil); err != nil {
		t.Fatal(err)
	}
	err = n.Attachments.WriteDevices(without, []vmspec.TaggedDevice{{Tags: []string{"a"}}})
	if err == nil || !strings.Contains(err.Error(), `disk "d": `) {
		t.Errorf("a drive without room: %v", err)
	}
}
