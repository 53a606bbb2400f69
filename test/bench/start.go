package bench

import (
	"context"

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
	defer ref.close()
	alone, shim, err := turns(ctx, r.Rounds, ref.side(ctx), p.vmSide("shim", image))
	if err != nil {
		return s, err
	}
	s = report.Section{
		Title: "A VM's start: CreateContainer and StartContainer, against libvirt alone",
		Rows: []report.Row{{
			Name: "create, start, resume", Unit: "ms", Kind: report.Ratio, Goal: 1.3,
			Baseline: alone, Measured: shim,
		}},
		Notes: []string{
			"libvirt alone: define, start paused, resume of the same domain by its API; its overlay",
			"and tap were made before. The shim makes those within the time, and cgroup and DHCP.",
		},
	}
	shares, err := r.shares(ctx, ref, shim)
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
