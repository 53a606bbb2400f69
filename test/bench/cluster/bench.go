package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// Options say what to measure.
type Options struct {
	Rounds int   // of one at a time
	Bursts []int // how many at once, in turn
	Log    io.Writer
}

// Default is what `make bench-cluster` measures.
func Default() Options { return Options{Rounds: 5, Bursts: []int{10, 20}, Log: io.Discard} }

// Run brings up a cluster, measures, and takes the cluster down.
func Run(ctx context.Context, o Options) (r report.Report, err error) {
	r = report.Report{Began: time.Now(), Machine: report.ThisMachine(ctx)}
	defer func() { r.Seconds = time.Since(r.Began).Seconds() }()
	fmt.Fprintln(o.Log, "bring up a cluster")
	rig, stop, err := newRig(ctx, o.Log)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, measure := range []func() (report.Section, error){
		func() (report.Section, error) { return rig.one(ctx, o.Rounds) },
		func() (report.Section, error) { return rig.bursts(ctx, o.Bursts) },
		func() (report.Section, error) { return rig.requests(ctx, 5) },
		func() (report.Section, error) { return rig.drains(ctx, o.Rounds) },
		func() (report.Section, error) { return rig.memory(ctx) },
	} {
		section, err := measure()
		if err != nil {
			return r, fmt.Errorf("%w\n%s", err, rig.look(ctx))
		}
		r.Sections = append(r.Sections, section)
	}
	return r, nil
}
