package compat

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hostcpu"
)

// maxCells bounds the guest's NUMA nodes.
const maxCells = 64

// Cell is a NUMA node that the guest sees.
type Cell struct {
	// CPUs are its vCPUs, as a list such as 0,1,7.
	CPUs string `json:"cpus"`
	// Memory is in KiB.
	Memory uint64 `json:"memory"`
}

// cellsOf returns the guest's NUMA nodes; nil for none. libvirt and the shim write the same
// lists of vCPUs in two ways.
func cellsOf(c *libvirtxml.DomainCPU) ([]Cell, error) {
	if c.Numa == nil {
		return nil, nil
	}
	var all []Cell
	for _, cell := range c.Numa.Cell {
		ids, err := hostcpu.Parse(cell.CPUs)
		if err != nil {
			return nil, fmt.Errorf("%w: NUMA node: %w", ErrShape, err)
		}
		unit := map[string]uint64{"": 1, "KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20}[cell.Unit]
		if unit == 0 {
			return nil, fmt.Errorf("%w: NUMA node with memory in %.20q", ErrShape, cell.Unit)
		}
		all = append(all, Cell{CPUs: hostcpu.Format(ids), Memory: uint64(cell.Memory) * unit})
	}
	return all, nil
}

// sameCells returns an error if the target would show the guest other NUMA nodes: a guest
// learns them when it boots. They follow from the processors that the kubelet has assigned.
func sameCells(target *libvirtxml.DomainCPU, s Shape) error {
	own, err := cellsOf(target)
	if err != nil {
		return err
	}
	if !slices.Equal(own, s.NUMA) {
		return fmt.Errorf("%w: the guest sees the NUMA nodes %+v, and with the processors of this node's container it would see %+v",
			ErrShape, s.NUMA, own)
	}
	return nil
}
