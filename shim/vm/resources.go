package vm

import (
	"fmt"
	"maps"
	"math"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// resources are a container's, with the changes that were made since.
func resources(r record.Container) *runtimeapi.LinuxContainerResources {
	if r.Resources.Value != nil {
		return r.Resources.Value
	}
	return r.Config.Value.GetLinux().GetResources()
}

// merged is what a change makes of resources, as in containerd: a zero field
// leaves what is there. The OOM score is set at the start alone.
func merged(old, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{}
	if old != nil {
		r = proto.CloneOf(old)
	}
	for _, f := range []struct {
		to   *int64
		from int64
	}{
		{&r.CpuPeriod, change.GetCpuPeriod()},
		{&r.CpuQuota, change.GetCpuQuota()},
		{&r.CpuShares, change.GetCpuShares()},
		{&r.MemoryLimitInBytes, change.GetMemoryLimitInBytes()},
		{&r.MemorySwapLimitInBytes, change.GetMemorySwapLimitInBytes()},
	} {
		if f.from != 0 {
			*f.to = f.from
		}
	}
	if cpus := change.GetCpusetCpus(); cpus != "" {
		r.CpusetCpus = cpus
	}
	if mems := change.GetCpusetMems(); mems != "" {
		r.CpusetMems = mems
	}
	if pages := change.GetHugepageLimits(); len(pages) > 0 {
		r.HugepageLimits = pages
	}
	if len(change.GetUnified()) > 0 {
		unified := maps.Clone(r.Unified)
		if unified == nil {
			unified = map[string]string{}
		}
		maps.Copy(unified, change.GetUnified())
		r.Unified = unified
	}
	return r
}

const (
	mebibyte = 1 << 20
	// A guest that is left with less than this much, or than this part of its
	// RAM, spends its time on reclaiming memory, or kills what it was made for.
	leastMemory     = 64 * mebibyte
	leastMemoryPart = 4
)

// memoryBounds are the limits of memory, in bytes, that a machine can be given
// while it runs: RAM is what it booted with, and only the balloon can change
// what it has of that.
type memoryBounds struct{ least, ram, most int64 }

func boundsOf(r record.Container) memoryBounds {
	b := memoryBounds{ram: r.Spec.Memory, most: math.MaxInt64}
	b.least = min(b.ram, max(leastMemory, b.ram/leastMemoryPart))
	if !r.Spec.Balloon {
		b.least = b.ram
	}
	if limit := r.Config.Value.GetLinux().GetResources().GetMemoryLimitInBytes(); limit > 0 {
		b.most = max(limit, b.ram)
	}
	return b
}

// check refuses a limit that the guest can't be given.
func (b memoryBounds) check(limit int64) error {
	if limit >= b.least && limit <= b.most {
		return nil
	}
	most := "any more"
	if b.most != math.MaxInt64 {
		most = bytesText(b.most)
	}
	return fmt.Errorf("%w: memory limit %s: it booted with %s of RAM, and while it runs its limit can be %s to %s: "+
		"for another one make a new VM", ErrRange, bytesText(limit), bytesText(b.ram), bytesText(b.least), most)
}

// guestMemory is what a guest has of its RAM under a limit, in bytes.
func (b memoryBounds) guestMemory(limit int64) int64 {
	if limit <= 0 || limit > b.ram {
		return b.ram
	}
	return limit / mebibyte * mebibyte
}

func bytesText(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
