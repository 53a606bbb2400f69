package domain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
)

// Pins are the processors of a VM's threads. All are empty for a VM without dedicated ones.
type Pins struct {
	// VCPUs are the processor of each vCPU.
	VCPUs []hostcpu.CPU
	// Emulator are the processors of QEMU's other threads; empty for all of the VM's.
	Emulator []int
	// IOThreads are the processors of each thread for the I/O of disks.
	IOThreads [][]int
}

// PinsOf places the threads of a VM on the processors that the kubelet has given to its container,
// as KubeVirt does: the threads of a guest's core on one core of the node while there are whole
// ones, then each thread of a supplemental pool, and QEMU's other threads, on one of the rest.
func PinsOf(desc Description) (Pins, error) {
	spec := desc.Spec
	if !spec.CPU.Dedicated {
		return Pins{}, nil
	}
	free, err := freeOf(desc)
	if err != nil {
		return Pins{}, err
	}
	if need := int(spec.DedicatedCPUs()); len(free.all()) < need {
		return Pins{}, fmt.Errorf("the kubelet assigned the processors %q to the container; the VM needs %d", desc.CPUSet, need)
	}
	var p Pins
	for range spec.CPU.Sockets * spec.CPU.Cores {
		threads := free.core(int(spec.CPU.Threads), !spec.CPU.NUMA)
		if threads == nil {
			return Pins{}, fmt.Errorf("the threads of a core of the guest would be on two NUMA nodes with the processors %q", desc.CPUSet)
		}
		p.VCPUs = append(p.VCPUs, threads...)
	}
	if spec.IOThreadPool {
		for range spec.IOThreads {
			p.IOThreads = append(p.IOThreads, []int{free.core(1, true)[0].ID})
		}
	}
	if spec.CPU.IsolateEmulator {
		p.Emulator = []int{free.core(1, true)[0].ID}
	}
	if !spec.IOThreadPool {
		p.IOThreads = p.shared(int(spec.IOThreads))
	}
	return p, nil
}

// shared returns the processors of threads without processors that are theirs alone: those of
// QEMU's other threads if they are isolated, or else parts of the vCPUs'.
func (p Pins) shared(threads int) [][]int {
	var all [][]int
	for i := range threads {
		if p.Emulator != nil {
			all = append(all, p.Emulator)
			continue
		}
		var part []int
		for n, cpu := range p.VCPUs {
			if n%threads == i || threads > len(p.VCPUs) && i%len(p.VCPUs) == n {
				part = append(part, cpu.ID)
			}
		}
		all = append(all, part)
	}
	return all
}

// freeCPUs are processors that no thread has yet, by their cores, which are sorted by NUMA node.
type freeCPUs struct{ cores [][]hostcpu.CPU }

func freeOf(desc Description) (*freeCPUs, error) {
	ids, err := hostcpu.Parse(desc.CPUSet)
	if err != nil {
		return nil, fmt.Errorf("the container's processors: %w", err)
	}
	f := &freeCPUs{}
	for _, cpu := range desc.NodeCPUs {
		if !slices.Contains(ids, cpu.ID) {
			continue
		}
		i := slices.IndexFunc(f.cores, func(core []hostcpu.CPU) bool { return core[0].Core == cpu.Core && core[0].Node == cpu.Node })
		if i < 0 {
			f.cores = append(f.cores, nil)
			i = len(f.cores) - 1
		}
		f.cores[i] = append(f.cores[i], cpu)
	}
	slices.SortStableFunc(f.cores, func(a, b []hostcpu.CPU) int { return cmp.Compare(a[0].Node, b[0].Node) })
	return f, nil
}

func (f *freeCPUs) all() []hostcpu.CPU { return slices.Concat(f.cores...) }

// core takes the processors of one core of the guest: of one core of the node if one has enough,
// or else of one NUMA node, or, if cross, of any. It returns nil if there are none.
func (f *freeCPUs) core(threads int, cross bool) []hostcpu.CPU {
	for _, core := range f.cores {
		if len(core) >= threads {
			return f.take(core[:threads])
		}
	}
	byNode := map[int][]hostcpu.CPU{}
	for _, cpu := range f.all() {
		byNode[cpu.Node] = append(byNode[cpu.Node], cpu)
		if of := byNode[cpu.Node]; len(of) == threads {
			return f.take(of)
		}
	}
	if all := f.all(); cross && len(all) >= threads {
		return f.take(all[:threads])
	}
	return nil
}

func (f *freeCPUs) take(taken []hostcpu.CPU) []hostcpu.CPU {
	taken = slices.Clone(taken)
	for i, core := range f.cores {
		f.cores[i] = slices.DeleteFunc(slices.Clone(core), func(c hostcpu.CPU) bool { return slices.Contains(taken, c) })
	}
	f.cores = slices.DeleteFunc(f.cores, func(core []hostcpu.CPU) bool { return len(core) == 0 })
	return taken
}

// Pin places the threads of a running domain. A kernel before 6.2 forgets where they were when
// their cgroup changes. Pins without processors change nothing.
func (l *Lifecycle) Pin(ctx context.Context, uuid string, p Pins) error {
	if len(p.VCPUs) == 0 {
		return nil
	}
	return do(ctx, l.conn, "pin the threads of", uuid, func(dom *libvirt.Domain) error {
		for vcpu, cpu := range p.VCPUs {
			if err := dom.PinVcpuFlags(uint(vcpu), cpuMap([]int{cpu.ID}), libvirt.DOMAIN_AFFECT_LIVE); err != nil {
				return err
			}
		}
		for i, cpus := range p.IOThreads {
			if err := dom.PinIOThread(uint(i+1), cpuMap(cpus), libvirt.DOMAIN_AFFECT_LIVE); err != nil {
				return err
			}
		}
		if p.Emulator == nil {
			return nil
		}
		return dom.PinEmulator(cpuMap(p.Emulator), libvirt.DOMAIN_AFFECT_LIVE)
	})
}

func cpuMap(ids []int) []bool {
	bits := make([]bool, slices.Max(ids)+1)
	for _, id := range ids {
		bits[id] = true
	}
	return bits
}
