package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// secondGoal is how long the disk of an image's second VM may take, in ms.
const secondGoal = 50

// second measures what the disk of a further VM of an image takes: CreateContainer, and the part
// of StartContainer that attaches the disk to the domain.
func (r *rig) second(ctx context.Context) (s report.Section, err error) {
	s.Title = "The disk of an image's second VM, by mode, on " + r.fileSystem()
	s.Notes = []string{"Attach is the phase disks of StartContainer: descriptors, or tgtd's target and what it serves."}
	modes := []vmspec.Mode{vmspec.ModeFile, vmspec.ModeISCSI}
	if r.fs != "" { // where raw's second VM takes no copy
		modes = append(modes, vmspec.ModeRaw)
	}
	path, err := r.contentDisk(ctx, formats()[1], virtualSize)
	if err != nil {
		return s, err
	}
	image, err := r.pushDisk(ctx, "second:1", path)
	if err != nil {
		return s, err
	}
	for _, mode := range modes {
		rows, err := r.secondOf(ctx, mode, image)
		if err != nil {
			return s, fmt.Errorf("mode %s: %w", mode, err)
		}
		s.Rows = append(s.Rows, rows...)
	}
	return s, nil
}

func (r *rig) secondOf(ctx context.Context, mode vmspec.Mode, image string) ([]report.Row, error) {
	p, err := r.diskPod(ctx, "second-"+string(mode), mode)
	if err != nil {
		return nil, err
	}
	of := "mode " + string(mode)
	create, both := report.Series{Of: of}, report.Series{Of: of}
	for round := range r.Rounds + 1 {
		begun := time.Now()
		id, err := p.create(ctx, "guest", image)
		if err != nil {
			return nil, err
		}
		took := milliseconds(time.Since(begun))
		if err := p.start(ctx, id); err != nil {
			return nil, err
		}
		if err := p.end(ctx, id); err != nil {
			return nil, err
		}
		if round > 0 { // the first VM's
			create.Add(took)
		}
	}
	attach, err := readPhase(filepath.Join(r.Dir(), "log", "shim.log"), "disks", r.Rounds)
	if err != nil {
		return nil, err
	}
	for i, c := range create.Samples {
		both.Add(c + attach.Samples[i])
	}
	whole := value(of, both)
	whole.Goal = secondGoal
	return []report.Row{whole, value(of+": create", create), value(of+": attach", attach)}, nil
}
