package bench

import (
	"context"
	"fmt"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// storedVMs is of how many VMs the bytes are counted.
const storedVMs = 50

// stored counts what VMs of one image take on the file system, before their guests write, beside as
// many copies of their disk.
func (r *rig) stored(ctx context.Context) (s report.Section, err error) {
	path, err := r.contentDisk(ctx, formats()[1], virtualSize)
	if err != nil {
		return s, err
	}
	image, err := r.pushDisk(ctx, "stored:1", path)
	if err != nil {
		return s, err
	}
	s.Title = fmt.Sprintf("Bytes stored for %d VMs of a compressed image, against as many raw copies, on xfs", storedVMs)
	for _, mode := range []vmspec.Mode{vmspec.ModeFile, vmspec.ModeRaw} {
		before, err := r.free()
		if err != nil {
			return s, err
		}
		for i := range storedVMs {
			p, err := r.diskPod(ctx, fmt.Sprintf("stored-%s-%d", mode, i), mode)
			if err != nil {
				return s, err
			}
			if _, err := p.create(ctx, "guest", image); err != nil {
				return s, err
			}
		}
		after, err := r.free()
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, report.Row{
			Name: "mode " + string(mode), Unit: "MiB", Kind: report.Ratio,
			Baseline: report.Series{Of: "copies", Samples: []float64{storedVMs * contentSize >> 20}},
			Measured: report.Series{Of: string(mode), Samples: []float64{float64(before-after) / (1 << 20)}},
		})
	}
	return s, nil
}

// free is what the node's file system has left, in bytes, when all is written.
func (r *rig) free() (int64, error) {
	syscall.Sync()
	var st syscall.Statfs_t
	if err := syscall.Statfs(r.Dir(), &st); err != nil {
		return 0, fmt.Errorf("ask for the room in %s: %w", r.Dir(), err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}
