// Package resources translates CRI's resources of a VM container: into limits of
// its cgroup, and into the memory that its guest has.
//
// It also reads and sets the cgroup of one VM. When resources change is package
// lifecycle's business.
package resources

import (
	"fmt"
	"maps"
	"math"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Of returns a container's resources, with the changes since its creation.
func Of(r record.Container) *runtimeapi.LinuxContainerResources {
	if r.Resources.Value != nil {
		return r.Resources.Value
	}
	return r.Config.Value.GetLinux().GetResources()
}

// Merge applies a change to resources as containerd does: a zero field leaves
// the old value. The OOM score counts only at the start.
func Merge(old, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
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
	// A guest with less memory than this, or than this part of its RAM, spends its
	// time on reclaiming memory, or kills the programs that it exists for.
	leastMemory     = 64 * mebibyte
	leastMemoryPart = 4
)

// Memory bounds the memory limit, in bytes, that a container can be given while
// its guest runs. The guest booted with ram, and only the balloon changes how
// much of it the guest has. A guest with huge pages keeps its RAM: its container's
// limit is for QEMU alone.
type Memory struct {
	least, ram, most int64
	huge             bool
}

// MemoryOf returns the bounds of a VM.
func MemoryOf(r record.Container) Memory {
	b := Memory{ram: r.Spec.Memory, most: math.MaxInt64, huge: r.Spec.HugePage > 0}
	b.least = min(b.ram, max(leastMemory, b.ram/leastMemoryPart))
	if !r.Spec.Balloon {
		b.least = b.ram
	}
	if limit := r.Config.Value.GetLinux().GetResources().GetMemoryLimitInBytes(); limit > 0 {
		b.most = max(limit, b.ram)
	}
	return b
}

// Check refuses a limit that the guest can't be given.
func (b Memory) Check(limit int64) error {
	if b.huge || limit >= b.least && limit <= b.most {
		return nil
	}
	most := "any more"
	if b.most != math.MaxInt64 {
		most = Text(b.most)
	}
	return fmt.Errorf("%w: memory limit %s: the guest booted with %s of RAM, and while it runs the limit can be %s to %s: "+
		"for another limit, make a new VM", vmerrors.ErrRange, Text(limit), Text(b.ram), Text(b.least), most)
}

// Guest returns how much of its RAM, in bytes, the guest has under a limit.
func (b Memory) Guest(limit int64) int64 {
	if b.huge || limit <= 0 || limit > b.ram {
		return b.ram
	}
	return limit / mebibyte * mebibyte
}

// Text writes a number of bytes as Kubernetes does.
func Text(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
