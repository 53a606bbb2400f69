package vmspec

import (
	"fmt"
	"math"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	mebibyte = 1 << 20
	// minMemory is KubeVirt's bound, 1 MB. QEMU starts with as little, and no guest boots.
	minMemory = 1e6
	// maxMemory is the most that guest physical addresses of 44 bits reach.
	maxMemory = 1 << 44
	// MaxVCPUs is the largest number of vCPUs of a VM. It is below 255, the limit of q35 without an IOMMU for
	// interrupts.
	MaxVCPUs = 240
)

// limits are a container's limits; 0 where it has none.
type limits struct {
	cpuQuota, cpuPeriod int64 // microseconds
	memory              int64 // bytes
	// added is the part of memory that is QEMU's.
	added int64
	// hugepages has bytes by the names of page sizes, see hugePageName.
	hugepages map[string]int64
}

// hugePageName returns CRI's name of a page size, such as 2MB.
func hugePageName(page int64) string {
	if page >= 1<<30 {
		return fmt.Sprintf("%dGB", page>>30)
	}
	return fmt.Sprintf("%dMB", page>>20)
}

func readLimits(r *runtimeapi.LinuxContainerResources) limits {
	l := limits{memory: max(r.GetMemoryLimitInBytes(), 0), hugepages: map[string]int64{}}
	for _, h := range r.GetHugepageLimits() {
		l.hugepages[h.GetPageSize()] = int64(min(h.GetLimit(), math.MaxInt64))
	}
	if r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0 {
		l.cpuQuota, l.cpuPeriod = r.GetCpuQuota(), r.GetCpuPeriod()
	}
	return l
}

// guestMemory returns the part of the memory limit that the guest can have; 0 for a container without
// a limit. What is below 1 is refused as too little.
func (l limits) guestMemory() int64 {
	if l.memory == 0 {
		return 0
	}
	return l.memory - l.added
}

// memoryText returns the memory limit for an error.
func (l limits) memoryText() string {
	if l.added == 0 {
		return bytesText(l.memory)
	}
	return fmt.Sprintf("%s with an addedOverhead of %s", bytesText(l.memory), bytesText(l.added))
}

// vcpus returns the CPU limit in whole processors, rounded up; 1 without a limit.
func (r request) vcpus() (uint32, error) {
	l := r.limits
	if l.cpuQuota == 0 {
		return 1, nil
	}
	n := (l.cpuQuota-1)/l.cpuPeriod + 1
	if n > MaxVCPUs {
		return 0, fmt.Errorf("container %s: resources.limits.cpu makes %d vCPUs; a VM has at most %d",
			r.container, n, MaxVCPUs)
	}
	return uint32(n), nil
}

// memory returns the memory limit as RAM, in bytes.
func (r request) memory() (int64, error) {
	if r.limits.memory == 0 {
		return 0, fmt.Errorf("container %s: a VM needs resources.limits.memory", r.container)
	}
	memory, err := ram(r.limits.guestMemory())
	if err != nil {
		return 0, fmt.Errorf("container %s: resources.limits.memory: %w", r.container, err)
	}
	return memory, nil
}

// ram rounds a size in bytes down to a size that a VM can have, to at least 1 MiB.
func ram(size int64) (int64, error) {
	switch {
	case size < minMemory:
		return 0, fmt.Errorf("%d bytes are too little for a VM: must be greater than or equal to 1M", size)
	case size > maxMemory:
		return 0, fmt.Errorf("%d bytes are too much for a guest; give it at most %d GiB",
			size, maxMemory>>30)
	}
	return max(size/mebibyte, 1) * mebibyte, nil
}

// TranslatedCode returns how much memory the QEMU of a guest with so much RAM uses for code that it has translated, where
// there is no KVM: a quarter of the RAM, 32 to 512 MiB. QEMU's default is up to 1 GiB for each VM. All are in bytes.
func TranslatedCode(ram int64) int64 {
	return min(max(ram/4, 32*mebibyte), 512*mebibyte)
}
