package vmspec_test

import (
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestPodVolumesAllocations: the table of volume kinds is made once, not for each volume.
// The controller asks for an instance's volumes many times.
func TestPodVolumesAllocations(t *testing.T) {
	volumes := twoVolumes()
	allocations := testing.AllocsPerRun(10, func() { vmspec.PodVolumes(volumes) })
	if most := 12.0 * float64(len(volumes)); allocations > most {
		t.Errorf("%.0f allocations for %d volumes, want %.0f at most", allocations, len(volumes), most)
	}
}

func BenchmarkPodVolumes(b *testing.B) {
	b.ReportAllocs()
	volumes := twoVolumes()
	for b.Loop() {
		vmspec.PodVolumes(volumes)
	}
}

func twoVolumes() []kubevirt.Volume {
	return []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: "#cloud-config\n"}}},
	}
}
