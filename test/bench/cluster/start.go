package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// limit bounds each life that is measured.
const limit = 5 * time.Minute

// life is how long one took for what, from its creation or its deletion on.
type life struct {
	phases        map[string]time.Duration
	answers, gone time.Duration
	spent         spent // in the shim
}

// live makes one, waits until it answers, and deletes it.
func (r *rig) live(ctx context.Context, s subject, name string) (life, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l := life{phases: map[string]time.Duration{}}
	before, err := r.spent(ctx)
	if err != nil {
		return l, err
	}
	begun, err := r.create(ctx, s, name)
	if err != nil {
		return l, err
	}
	for _, what := range []string{s.running, podMade, podScheduled, podSandbox, podRunning} {
		at, err := r.seen.wait(ctx, name, what)
		if err != nil {
			return l, err
		}
		l.phases[what] = at.Sub(begun)
	}
	if l.spent, err = r.spent(ctx); err != nil {
		return l, err
	}
	l.spent = l.spent.less(before)
	at, err := r.answers(ctx, name)
	if err != nil {
		return l, err
	}
	l.answers = at.Sub(begun)
	// What follows a start, such as a status, should not meet the deletion.
	if err := sleep(ctx, time.Second); err != nil {
		return l, err
	}
	if begun, err = r.remove(ctx, s, name); err != nil {
		return l, err
	}
	for _, what := range []string{s.gone, podGone} {
		if at, err = r.seen.wait(ctx, name, what); err != nil {
			return l, err
		}
		l.gone = max(l.gone, at.Sub(begun))
	}
	return l, nil
}

// one measures one at a time, after a round that is not counted.
func (r *rig) one(ctx context.Context, rounds int) ([]report.Section, error) {
	var lives []life
	section := report.Section{Title: "One at a time, from the request to create it, or to delete it"}
	series := map[string]*report.Series{}
	add := func(what string, d time.Duration) {
		if series[what] == nil {
			series[what] = &report.Series{Of: what}
		}
		series[what].Add(milliseconds(d))
	}
	for i := range rounds + 1 {
		fmt.Fprintf(r.log, "one at a time: round %d of %d\n", i, rounds)
		p, err := r.live(ctx, plain, fmt.Sprintf("plain-%d", i))
		if err != nil {
			return nil, err
		}
		v, err := r.live(ctx, vmi, fmt.Sprintf("vm-%d", i))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue
		}
		lives = append(lives, v)
		for what, d := range p.phases {
			add("pod: "+what, d)
		}
		add("pod: answers", p.answers)
		add("pod: deleted, gone", p.gone)
		for what, d := range v.phases {
			add("VMI: "+what, d)
		}
		add("VMI: answers", v.answers)
		add("VMI: deleted, gone", v.gone)
		add("VMI: pod made to pod Running", v.phases[podRunning]-v.phases[podMade])
		add("VMI: pod Running to VMI Running", v.phases[vmiRunning]-v.phases[podRunning])
	}
	goals := map[string]float64{"VMI: " + vmiRunning: 1500, "VMI: deleted, gone": 2000}
	for _, what := range []string{
		"pod: " + podScheduled, "pod: " + podSandbox, "pod: " + podRunning, "pod: answers", "pod: deleted, gone",
		"VMI: " + podMade, "VMI: " + podScheduled, "VMI: " + podSandbox, "VMI: " + podRunning, "VMI: " + vmiRunning,
		"VMI: pod made to pod Running", "VMI: pod Running to VMI Running",
		"VMI: answers", "VMI: deleted, gone",
	} {
		section.Rows = append(section.Rows, report.Row{
			Name: what, Unit: "ms", Kind: report.Value, Measured: *series[what], Goal: goals[what],
		})
	}
	section.Notes = []string{
		"A VMI deleted is a guest that hears the power button and shuts down. A status may be seen before",
		"one that was there earlier: the kubelet sends several at once.",
	}
	return []report.Section{section, shares(lives)}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
