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
	names := vmspec.Targets(disks)
	if got := names[:4]; !slices.Equal(got, []string{"sda", "vda", "sdb", "vdb"}) {
		t.Errorf("%q", got)
	}
	// Of virtio's the first is names[1], and from the second on names[2+n].
	for n, want := range map[int]string{25: "vdz", 26: "vdaa", 27: "vdab", 701: "vdzz", 702: "vdaaa"} {
		if got := names[2+n]; got != want {
			t.Errorf("disk %d is %s, want %s", n, got, want)
		}
		if unit, err := vmspec.TargetUnit(want); err != nil || unit != n {
			t.Errorf("unit of %s: %d, %v, want %d", want, unit, err, n)
		}
	}
}

// TestTargetsStay: a disk keeps its name when one before it is unplugged, and a
// new one takes the first free name.
func TestTargetsStay(t *testing.T) {
	disks := []vmspec.Disk{
		{Bus: vmspec.BusVirtio, Target: "vdb"}, {Bus: vmspec.BusVirtio}, {Bus: vmspec.BusSCSI, Target: "sdc"},
		{Bus: vmspec.BusVirtio}, {Bus: vmspec.BusSCSI}, {Bus: vmspec.BusVirtio, Target: "vdc"},
	}
	if got := vmspec.Targets(disks); !slices.Equal(got, []string{"vdb", "vda", "sdc", "vdd", "sda", "vdc"}) {
		t.Errorf("%q", got)
	}
}

func TestTargetUnit(t *testing.T) {
	for _, bad := range []string{"", "vd", "hda", "vdA", "vd1", "sd-", "vdaaaaaaaaaaaaaaaa"} {
		if unit, err := vmspec.TargetUnit(bad); err == nil {
			t.Errorf("%q is unit %d", bad, unit)
		}
	}
}
