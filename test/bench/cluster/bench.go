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
	// Replicas is how many a replica set is scaled to.
	Replicas int
}

// several VMIs are enough to compute the requests of one.
const several = 5

// Default is what `make bench-cluster` measures.
func Default() Options {
	return Options{Rounds: 5, Bursts: []int{10, 20}, Replicas: 20, Log: io.Discard}
}

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
	sections, err := rig.measure(ctx, o)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, rig.look(ctx))
	}
	r.Sections = sections
	return r, err
}

// measure returns what was measured until the first error.
func (r *rig) measure(ctx context.Context, o Options) (all []report.Section, err error) {
	idle, err := r.weigh(ctx)
	if err != nil {
		return nil, err
	}
	if all, err = r.one(ctx, o.Rounds); err != nil {
		return all, err
	}
	for _, next := range []func() (report.Section, error){
		func() (report.Section, error) { return r.bursts(ctx, o.Bursts) },
		func() (report.Section, error) { return r.replicas(ctx, o.Replicas) },
		func() (report.Section, error) { return r.requests(ctx, several) },
		func() (report.Section, error) { return r.idle(ctx, several) },
		func() (report.Section, error) { return r.drains(ctx, o.Rounds) },
		func() (report.Section, error) { return r.memory(ctx, idle) },
		func() (report.Section, error) { return r.echo(ctx) },
	} {
		section, err := next()
		if err != nil {
			return all, err
		}
		all = append(all, section)
	}
	return all, nil
}
