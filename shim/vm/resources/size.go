package resources

import (
	"fmt"
	"math"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	mebibyte = 1 << 20
	// A guest with less memory than this, or than this part of its RAM, spends its
	// time on reclaiming memory, or kills the programs that it exists for.
	leastMemory     = 64 * mebibyte
	leastMemoryPart = 4
)

// base is the size of a running guest, and the limits of its container that go with it. Limits
// that are raised above these give the guest as much more.
type base struct {
	sockets uint32
	memory  int64 // bytes
	// cpus and limit are the container's limits of CPU and memory, in whole processors and in bytes; 0 for none.
	cpus, limit int64
	// added is the part of the memory limit that is QEMU's, which limit is without.
	added int64
}

func baseOf(r record.Container) base {
	given := r.Config.Value.GetLinux().GetResources()
	return base{
		sockets: r.Spec.CPU.Sockets, memory: r.Spec.Memory, added: r.Spec.AddedOverhead,
		cpus: processors(given), limit: max(given.GetMemoryLimitInBytes()-r.Spec.AddedOverhead, 0),
	}
}

// processors returns a limit of CPU in whole processors, rounded up; 0 for none.
func processors(r *runtimeapi.LinuxContainerResources) int64 {
	if r.GetCpuQuota() <= 0 || r.GetCpuPeriod() <= 0 {
		return 0
	}
	return (r.GetCpuQuota()-1)/r.GetCpuPeriod() + 1
}

// VCPUs returns how many vCPUs a running VM should have: those of its start, and as many whole
// sockets more as its container's limit of CPU was raised by, up to the VM's maximum.
func VCPUs(r record.Container) uint32 {
	cpu, b := r.Spec.CPU, baseOf(r)
	perSocket := cpu.Cores * cpu.Threads
	if now := processors(Of(r)); b.cpus > 0 && now > b.cpus && cpu.MaxSockets > b.sockets {
		more := (now - b.cpus) / int64(perSocket)
		b.sockets += uint32(min(more, int64(cpu.MaxSockets-b.sockets)))
	}
	return b.sockets * perSocket
}

// Memory bounds the memory limit, in bytes, that a container can be given while
// its guest runs. The balloon takes RAM from the guest, and a higher limit gives it
// more, up to the VM's maximum. A guest with huge pages keeps its RAM: its container's
// limit is for QEMU alone.
type Memory struct {
	base
	least, most int64
	// max is the RAM that the guest can get at most.
	max  int64
	huge bool
}

// MemoryOf returns the bounds of a VM.
func MemoryOf(r record.Container) Memory {
	b := Memory{base: baseOf(r), most: math.MaxInt64, huge: r.Spec.HugePage > 0}
	b.max = max(r.Spec.MaxMemory, b.memory)
	if b.limit > 0 {
		b.most = max(b.limit, b.memory) + b.max - b.memory
	}
	b.least = min(b.memory, max(leastMemory, r.Spec.Memory/leastMemoryPart))
	if !r.Spec.Balloon {
		b.least = b.memory
		if now := Of(r).GetMemoryLimitInBytes(); b.Guest(now) > b.memory {
			b.least = now - b.added
		}
	}
	return b
}

// Check refuses a limit that the guest can't be given.
func (b Memory) Check(limit int64) error {
	if b.huge || limit-b.added >= b.least && limit-b.added <= b.most {
		return nil
	}
	most := "any more"
	if b.most != math.MaxInt64 {
		most = Text(b.most + b.added)
	}
	return fmt.Errorf("%w: memory limit %s: the guest booted with %s of RAM, and while it runs the limit can be %s to %s: "+
		"for another limit, make a new VM", vmerrors.ErrRange, Text(limit), Text(b.memory), Text(b.least+b.added), most)
}

// Guest returns how much RAM, in bytes, the guest has under a limit.
func (b Memory) Guest(limit int64) int64 {
	if b.huge || limit <= 0 {
		return b.memory
	}
	limit -= b.added
	switch {
	case limit < b.memory:
		return limit / mebibyte * mebibyte
	case b.limit == 0 || limit <= b.limit:
		return b.memory
	}
	steps := min(limit-b.limit, b.max-b.memory) / vmspec.MemoryStep
	return b.memory + steps*vmspec.MemoryStep
}
