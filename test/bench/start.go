package bench

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// start compares a VM's start through the shim with that of the same domain through libvirt's API
// alone, on plain files that were made before.
func (r *rig) start(ctx context.Context) (s report.Section, err error) {
	image, disk, err := r.tiny(ctx)
	if err != nil {
		return s, err
	}
	p, err := r.runPod(ctx, r.shim, "start", "vm")
	if err != nil {
		return s, err
	}
	ref, err := r.newReference(ctx, p, image, disk)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, ref.close()) }()
	sides := []side{p.vmSide("shim", image)}
	for _, d := range ref.domains {
		sides = append(sides, ref.side(d))
	}
	times, err := turns(ctx, r.Rounds, sides...)
	if err != nil {
		return s, err
	}
	s = report.Section{
		Title: "A VM's start: CreateContainer and StartContainer, against libvirt alone",
		Notes: []string{
			"libvirt alone: define, start paused, resume of the same domain by its API; its overlay",
			"and tap were made before. The shim makes those within the time, and cgroup and DHCP.",
		},
	}
	for i, d := range ref.domains {
		s.Rows = append(s.Rows, report.Row{
			Name: d.against, Unit: "ms", Kind: report.Ratio, Goal: d.goal, Baseline: times[i+1], Measured: times[0],
		})
	}
	shares, err := r.shares(ctx, ref, times[0])
	s.Rows = append(s.Rows, shares...)
	return s, err
}

// vmSide starts a VM through the shim, and removes it.
func (p *pod) vmSide(of, image string) side {
	var id string
	return side{
		of: of,
		do: func(ctx context.Context) (err error) {
			id, err = p.run(ctx, "guest", image)
			return err
		},
		tidy: func(ctx context.Context) error { return p.end(ctx, id) },
	}
}

// shares splits the time of starts: the shim's phases of StartContainer, of which some run at the
// same time, libvirt's calls, and QEMU alone.
func (r *rig) shares(ctx context.Context, ref *reference, whole report.Series) ([]report.Row, error) {
	phases, err := readPhases(filepath.Join(r.Dir(), "log", "shim.log"), len(whole.Samples))
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for _, p := range phases {
		rows = append(rows, value("shim: "+p.Of, p))
	}
	for _, c := range ref.domains[0].calls() {
		rows = append(rows, value("libvirt alone: "+c.Of, c))
	}
	greeting, err := greetings(ctx, len(whole.Samples))
	return append(rows, value("QEMU alone, to its greeting", greeting)), err
}

func value(name string, s report.Series) report.Row {
	return report.Row{Name: name, Unit: "ms", Kind: report.Value, Measured: s}
}
