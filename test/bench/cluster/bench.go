package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// Options say what to measure.
type Options struct {
	Only   []string // names of sections, see Names; all if empty
	Rounds int      // of one at a time
	Bursts []int    // how many at once, in turn
	Log    io.Writer
	// Replicas is how many a replica set is scaled to, Drained how many migrate off a node at once.
	Replicas, Drained int
}

// several VMIs are enough to compute the requests of one.
const several = 5

// Default is what `make bench-cluster` measures.
func Default() Options {
	return Options{Rounds: 5, Bursts: []int{10, 20}, Replicas: 20, Drained: 10, Log: io.Discard}
}

// Run brings up a cluster, measures, and takes the cluster down.
func Run(ctx context.Context, o Options) (r report.Report, err error) {
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			return r, fmt.Errorf("there is no part %q; there are %v", name, Names())
		}
	}
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

// part measures a part of the report.
type part struct {
	name string
	run  func(ctx context.Context) ([]report.Section, error)
}

// parts are in the order of the report. idle are the controllers' weights before anything ran.
func (r *rig) parts(o Options, idle []float64) []part {
	section := func(name string, run func(context.Context) (report.Section, error)) part {
		return part{name, func(ctx context.Context) ([]report.Section, error) {
			s, err := run(ctx)
			return []report.Section{s}, err
		}}
	}
	return []part{
		{"one", func(ctx context.Context) (_ []report.Section, err error) { return r.one(ctx, o.Rounds) }},
		section("pvcs", func(ctx context.Context) (report.Section, error) { return r.pvcs(ctx, o.Rounds) }),
		section("bursts", func(ctx context.Context) (report.Section, error) { return r.bursts(ctx, o.Bursts) }),
		section("replicas", func(ctx context.Context) (report.Section, error) { return r.replicas(ctx, o.Replicas) }),
		section("requests", func(ctx context.Context) (report.Section, error) { return r.requests(ctx, several) }),
		section("idle", func(ctx context.Context) (report.Section, error) { return r.idle(ctx, several) }),
		section("drains", func(ctx context.Context) (report.Section, error) { return r.drains(ctx, o.Rounds) }),
		section("migrations", func(ctx context.Context) (report.Section, error) { return r.migrations(ctx, o.Rounds, o.Drained) }),
		section("changes", func(ctx context.Context) (report.Section, error) { return r.changes(ctx, o.Rounds) }),
		section("memory", func(ctx context.Context) (report.Section, error) { return r.memory(ctx, idle) }),
		section("echo", r.echo),
	}
}

// Names are the names of the report's parts.
func Names() []string {
	var all []string
	for _, p := range new(rig).parts(Options{}, nil) {
		all = append(all, p.name)
	}
	return all
}

// measure returns what was measured until the first error.
func (r *rig) measure(ctx context.Context, o Options) (all []report.Section, err error) {
	idle, err := r.weigh(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range r.parts(o, idle) {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		sections, err := p.run(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, sections...)
	}
	return all, nil
}
