package resources

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// resizable is a VM of 2 sockets and 1 GiB that can have 4 and 2 GiB, with limits of 2 processors and 1.25 GiB.
func resizable() record.Container {
	r := record.Container{Spec: vmspec.Spec{
		CPU:    vmspec.CPU{Sockets: 2, Cores: 1, Threads: 2, MaxSockets: 4},
		Memory: 1 << 30, MaxMemory: 2 << 30, Balloon: true,
	}}
	r.Config.Value = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 1280 << 20, CpuPeriod: 100000, CpuQuota: 200000,
	}}}
	return r
}

// TestGrowth: what a limit is raised by, the guest gets, up to its maximum.
func TestGrowth(t *testing.T) {
	const mi = 1 << 20
	r := resizable()
	b := MemoryOf(r)
	for limit, want := range map[int64]int64{
		0: 1024, 512: 512, 1024: 1024, 1100: 1024, 1280: 1024, 1300: 1024, 1408: 1152, 1600: 1280, 2304: 2048, 4096: 2048,
	} {
		if got := b.Guest(limit * mi); got != want*mi {
			t.Errorf("under %d MiB the guest has %d MiB, want %d", limit, got/mi, want)
		}
	}
	if err := b.Check(2304 * mi); err != nil {
		t.Error(err)
	}
	if err := b.Check(2304*mi + 1); err == nil || !strings.Contains(err.Error(), "the limit can be 256Mi to 2304Mi") {
		t.Errorf("beyond the maximum: %v", err)
	}
	r.Spec.Balloon = false
	r.Resources.Value = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1536 * mi}
	if err := MemoryOf(r).Check(1280 * mi); err == nil {
		t.Error("memory can be taken from a guest without a balloon")
	}
}

// TestAddedOverhead: what is QEMU's of the limit never becomes the guest's.
func TestAddedOverhead(t *testing.T) {
	const mi = 1 << 20
	r := resizable()
	r.Spec.AddedOverhead = 256 * mi // as without it, with a limit of 1024 MiB
	b := MemoryOf(r)
	for limit, want := range map[int64]int64{0: 1024, 768: 512, 1279: 1023, 1280: 1024, 1300: 1024, 1408: 1152, 2304: 2048, 4096: 2048} {
		if got := b.Guest(limit * mi); got != want*mi {
			t.Errorf("under %d MiB the guest has %d MiB, want %d", limit, got/mi, want)
		}
	}
	for limit, ok := range map[int64]bool{512 * mi: true, 512*mi - 1: false, 2304 * mi: true, 2304*mi + 1: false} {
		if err := b.Check(limit); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "can be 512Mi to 2304Mi") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func TestVCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		quota int64
		max   uint32
		want  uint32
	}{
		"as at the start": {200000, 4, 4}, "less": {100000, 4, 4}, "half a socket more": {300000, 4, 4}, "a socket more": {310000, 4, 6},
		"two more": {600000, 4, 8}, "beyond the maximum": {6000000, 4, 8}, "no maximum": {600000, 0, 4}, "no limit": {-1, 4, 4},
	} {
		r := resizable()
		r.Spec.CPU.MaxSockets = c.max
		r.Resources.Value = &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: c.quota}
		if got := VCPUs(r); got != c.want {
			t.Errorf("%s: %d vCPUs, want %d", name, got, c.want)
		}
	}
	r := resizable()
	r.Config.Value.Linux.Resources.CpuQuota = 0
	r.Resources.Value = &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 900000}
	if got := VCPUs(r); got != 4 {
		t.Errorf("a first limit gives %d vCPUs", got)
	}
}
