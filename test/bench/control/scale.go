package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// Resources of KubeVirt's.
const (
	vms  = "virtualmachines"
	vmis = "virtualmachineinstances"
)

// Goals; memory in KiB and MiB: 25,000 and 300,000,000 bytes.
const (
	flatGoal = 1.5
	eachGoal = 24.4
	allGoal  = 286.1
	// many is the number of VMs from which on the goal of each one's memory counts: with fewer, most of it
	// is the heap's reserve.
	many = 1000
)

// Sizes returns the numbers of VMs to measure on the way to a number of them: a tenth, three tenths, all.
func Sizes(vms int) []int {
	sizes := slices.Compact([]int{vms / 10, 3 * vms / 10, vms})
	return slices.DeleteFunc(sizes, func(n int) bool { return n == 0 })
}

// Scale measures VMIs and then VMs, or only those of one name, that run on nodes which KWOK plays, each
// with a separate control plane. With an error it returns what it has measured so far.
func Scale(ctx context.Context, o Options, sizes []int, only string) ([]report.Section, error) {
	var sections []report.Section
	for _, k := range []struct {
		name   string
		wanted func(ns, name string) object
	}{
		{"VMI", func(ns, name string) object { return instance(ns, name) }},
		{"VM", func(ns, name string) object { return machine(ns, name) }},
	} {
		if only != "" && only != k.name {
			continue
		}
		more, err := o.with(ctx, func(ctx context.Context, r *rig) ([]report.Section, error) {
			return r.scale(ctx, k.name, sizes, k.wanted)
		})
		sections = append(sections, more...)
		if err != nil {
			return sections, err
		}
	}
	return sections, nil
}

// scale measures objects of a name at each size.
func (r *rig) scale(ctx context.Context, name string, sizes []int, wanted func(ns, name string) object) ([]report.Section, error) {
	t, err := r.watchTransitions(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := r.footprint(ctx)
	if err != nil {
		return nil, err
	}
	var steps []step
	have := 0
	for _, size := range sizes {
		s, err := r.grow(ctx, t, strings.ToLower(name), have, size, wanted)
		if err != nil {
			return nil, err
		}
		steps, have = append(steps, s), size
	}
	last := steps[len(steps)-1]
	sections := []report.Section{
		growthSection(name, r.Options, idle, steps), transitionSection(name, last), requestSection(name, last), cpuSection(name, last),
	}
	whole, err := r.wholeSection(ctx, t, name, last.size)
	return append(sections, whole), err
}

// growthSection holds each size against the first.
func growthSection(name string, o Options, idle footprint, steps []step) report.Section {
	s := report.Section{
		Title: fmt.Sprintf("%ss that run on %d nodes, by their number", name, o.Nodes),
		Notes: []string{
			"Baseline: the first number. Each: of those that came after the number before.",
			fmt.Sprintf("At once: as fast as the API server takes them. One by one: %d a second.", o.Rate),
			"Without admission webhooks, kube-controller-manager and guest agents.",
		},
		Rows: []report.Row{report.One("none: the leader's RSS", "MiB", idle.rss, 0)},
	}
	for _, f := range []struct {
		what, unit string
		value      func(step) float64
		flat       bool    // hold each against the first
		goal       float64 // of each, if not flat
	}{
		{"created at once, each", "ms", func(s step) float64 { return s.each(s.created.Seconds()) }, true, 0},
		{"to Running at once, each", "ms", func(s step) float64 { return s.each(s.ran.Seconds()) }, true, flatGoal},
		{"controller's CPU, each", "ms", func(s step) float64 { return s.each(s.cpu[program]) }, true, flatGoal},
		{"at rest after all ran", "s", func(s step) float64 { return s.rest.Seconds() }, false, 0},
		{"one by one before that, Running: P50", "ms", func(s step) float64 { return seconds(s.early, 0.5) * 1000 }, true, 0},
		{"one by one, Running: P50", "ms", func(s step) float64 { return seconds(s.steady, 0.5) * 1000 }, true, 0},
		{"one by one, Running: P95", "ms", func(s step) float64 { return seconds(s.steady, 0.95) * 1000 }, true, 0},
		{"the leader's RSS", "MiB", func(s step) float64 { return s.footprint.rss }, false, allGoal},
		{"the leader's peak RSS", "MiB", func(s step) float64 { return s.footprint.peak }, false, 0},
		{"RSS beyond none, each", "KiB", func(s step) float64 { return (s.footprint.rss - idle.rss) * 1024 / float64(s.size) }, false, eachGoal},
		{"RSS beyond the number before, each", "KiB", func(s step) float64 {
			i := slices.IndexFunc(steps, func(o step) bool { return o.size == s.size })
			if i == 0 {
				return math.NaN()
			}
			return (s.footprint.rss - steps[i-1].footprint.rss) * 1024 / float64(s.grown)
		}, false, eachGoal},
	} {
		for i, at := range steps {
			if math.IsNaN(f.value(at)) {
				continue // all were created at once, or there is no number before
			}
			row := report.One(fmt.Sprintf("%d %ss: %s", at.size, name, f.what), f.unit, f.value(at), f.goal)
			if f.flat || at.size < many {
				row.Goal = 0
			}
			if f.flat && i > 0 {
				row.Kind, row.Goal, row.Baseline = report.Ratio, f.goal, report.Series{Samples: []float64{f.value(steps[0])}}
			}
			s.Rows = append(s.Rows, row)
		}
	}
	return s
}

func seconds(samples []float64, q float64) float64 {
	return report.Series{Samples: samples}.Quantile(q)
}

// transitionSection has the times from creation to Running in KubeVirt's buckets.
func transitionSection(name string, last step) report.Section {
	s := report.Section{
		Title: fmt.Sprintf("From creation to Running, the last of %d %ss", last.size, name),
		Notes: []string{
			"Baseline: created one by one. Measured: created at once.",
			"Buckets are of kubevirt_vmi_phase_transition_time_from_creation_seconds.",
		},
	}
	add := func(what, unit string, value func(samples []float64) float64) {
		row := report.One(what, unit, value(last.burst), 0)
		if len(last.steady) > 0 {
			row.Baseline = report.Series{Of: "one by one", Samples: []float64{value(last.steady)}}
		}
		s.Rows = append(s.Rows, row)
	}
	for _, q := range []float64{0.5, 0.95} {
		add(fmt.Sprintf("P%g", q*100), "s", func(samples []float64) float64 { return seconds(samples, q) })
		add(fmt.Sprintf("P%g, from the buckets", q*100), "s", func(samples []float64) float64 {
			return quantile(q, buckets(), histogram(buckets(), samples))
		})
	}
	burst, steady := histogram(buckets(), last.burst), histogram(buckets(), last.steady)
	for i, limit := range buckets() {
		if burst[i] == 0 && steady[i] == 0 {
			continue
		}
		add(fmt.Sprintf("within %g s", limit), "%", func(samples []float64) float64 {
			return 100 * float64(histogram(buckets(), samples)[i]) / float64(len(samples))
		})
		if burst[i] == len(last.burst) && steady[i] == len(last.steady) {
			break
		}
	}
	return s
}

// requestSection has the controller's requests for an object, the most frequent first.
func requestSection(name string, last step) report.Section {
	each := func(n int) float64 { return float64(n) / float64(last.grown) }
	s := report.Section{
		Title: fmt.Sprintf("The controller's requests for a %s, the last of %d", name, last.size),
		Rows:  []report.Row{report.One("all", "", each(last.requests.all()), requestGoal)},
	}
	if name == "VM" {
		s.Notes = []string{"By their source, KubeVirt 1.8's controllers send at least 14: they create 3 objects and 4 events, and write the VMI 4 times, the VM 3 times."}
	}
	byCount := slices.SortedFunc(maps.Keys(last.requests), func(a, b request) int {
		return cmp.Or(cmp.Compare(last.requests[b], last.requests[a]), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	for _, q := range byCount {
		s.Rows = append(s.Rows, report.One(q.verb+" "+q.resource, "", each(last.requests[q]), 0))
	}
	return s
}

// cpuSection says which program the time goes to.
func cpuSection(name string, last step) report.Section {
	s := report.Section{Title: fmt.Sprintf("CPU time for a %s at once, the last of %d", name, last.size)}
	for _, p := range slices.SortedFunc(maps.Keys(last.cpu), func(a, b string) int { return cmp.Compare(last.cpu[b], last.cpu[a]) }) {
		s.Rows = append(s.Rows, report.One(p, "ms", last.each(last.cpu[p]), 0))
	}
	return s
}

// wholeSection measures what concerns all objects together.
func (r *rig) wholeSection(ctx context.Context, t *transitions, name string, size int) (report.Section, error) {
	s := report.Section{
		Title: fmt.Sprintf("With %d %ss", size, name),
		Notes: []string{"A killed leader's lease expires after 15 s."},
	}
	add := func(what, unit string, v float64) { s.Rows = append(s.Rows, report.One(what, unit, v, 0)) }
	for _, query := range []struct{ what, query string }{
		{"a list of all VMIs", newest}, {"a list from the API server's cache", cached},
	} {
		l, err := r.listInstances(ctx, query.query)
		if err != nil {
			return s, err
		}
		add(query.what, "ms", l.took.Seconds()*1000)
		if query.query == newest {
			add("  its size", "MiB", float64(l.bytes)/(1<<20))
			add("  its size, each", "KiB", float64(l.bytes)/1024/float64(size))
		}
	}
	asked, err := readAudit(r.dir)
	if err != nil {
		return s, err
	}
	add("the controller's watches", "", float64(len(asked.watches)))
	f, err := r.failOver(ctx, t)
	if err != nil {
		return s, err
	}
	add("leader killed: another leads", "s", f.elected.Seconds())
	add("leader killed: a new VMI runs", "s", f.reconciled.Seconds())
	add("new leader: requests for VMs that were there", "", float64(f.repeated))
	add("new leader: CPU until it rests", "s", f.cpu)
	add("new leader: RSS", "MiB", f.footprint.rss)
	add("new leader: peak RSS", "MiB", f.footprint.peak)
	return s, nil
}
