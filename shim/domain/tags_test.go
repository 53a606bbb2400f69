package domain_test

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestTaggedIn: the XML is that of a defined domain, to which libvirt has added addresses.
func TestTaggedIn(t *testing.T) {
	spec := vmspec.Spec{
		Interfaces: []vmspec.Interface{{Name: "pods", Tag: "lan"}, {Name: "other"}},
		Disks: []vmspec.Disk{
			{Name: "root", Tag: "system"}, {Name: "data", Tag: "scratch"}, {Name: "cd", Tag: "tools"}, {Name: "stick", Tag: "carried"},
			{Name: "removed", Tag: "by-a-hook"}, {Name: "seed"},
		},
		HostDevices: []vmspec.HostDevice{
			{Kind: vmspec.HostDeviceSRIOV, Name: "vf", Tag: "fast"}, {Kind: vmspec.HostDeviceGPU, Name: "pods", Tag: "cuda"},
			{Kind: vmspec.HostDeviceGeneric, Name: "key", Tag: "login"}, {Kind: vmspec.HostDeviceGeneric, Name: "other"},
		},
	}
	got, err := domain.TaggedIn(string(golden.Get(t, "tags.xml")), spec)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(text)+"\n", "tags.json")

	if got, err := domain.TaggedIn("<domain></domain>", spec); err != nil || len(got) > 0 {
		t.Errorf("a domain without devices: %v, %v", got, err)
	}
	if _, err := domain.TaggedIn("<domain>", spec); err == nil {
		t.Error("half an XML is no error")
	}
}
