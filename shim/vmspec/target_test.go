package vmspec_test

import (
	"slices"
	"testing"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestTargets(t *testing.T) {
	disks := []vmspec.Disk{{Bus: vmspec.BusSATA}, {Bus: vmspec.BusVirtio}, {Bus: vmspec.BusSCSI}}
	for range 703 {
		disks = append(disks, vmspec.Disk{Bus: vmspec.BusVirtio})
	}
	var names []string
	for _, target := range vmspec.Targets(disks) {
		names = append(names, target.Name())
	}
	if got := names[:4]; !slices.Equal(got, []string{"sda", "vda", "sdb", "vdb"}) {
		t.Errorf("%q", got)
	}
	// Of virtio's the first is names[1], and from the second on names[2+n].
	for n, want := range map[int]string{25: "vdz", 26: "vdaa", 27: "vdab", 701: "vdzz", 702: "vdaaa"} {
		if got := names[2+n]; got != want {
			t.Errorf("disk %d is %s, want %s", n, got, want)
		}
	}
}
