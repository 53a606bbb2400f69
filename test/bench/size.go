package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// size compares starts of VMs from a small and a large disk, both empty but for their header.
func (r *rig) size(ctx context.Context) (s report.Section, err error) {
	var sides []side
	for _, size := range []string{"64M", "64G"} {
		path := filepath.Join(r.Dir(), size+".qcow2")
		out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", path, size).CombinedOutput()
		if err != nil {
			return s, fmt.Errorf("make a disk of %s: %w: %s", size, err, out)
		}
		image, err := r.pushDisk(ctx, strings.ToLower("disk-"+size)+":1", path)
		if err != nil {
			return s, err
		}
		p, err := r.runPod(ctx, r.shim, "disk", "vm")
		if err != nil {
			return s, err
		}
		sides = append(sides, p.vmSide(size, image))
	}
	times, err := turns(ctx, r.Rounds, sides...)
	if err != nil {
		return s, err
	}
	return report.Section{
		Title: "A VM's start from a disk of 64 GiB, against one of 64 MiB",
		Rows: []report.Row{{
			Name: "create, start, resume", Unit: "ms", Kind: report.Ratio, Goal: 1.1,
			Baseline: times[0], Measured: times[1],
		}},
	}, nil
}
