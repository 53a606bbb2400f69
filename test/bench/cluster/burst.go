package cluster

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// burst makes n at once, and measures from the first request until all run, until all answer, and
// until all are gone.
func (r *rig) burst(ctx context.Context, s subject, prefix string, n int) (running, answers, gone time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	last := func(each func(ctx context.Context, name string) (time.Time, error)) (latest time.Duration, err error) {
		ends := make([]time.Time, n)
		group, ctx := errgroup.WithContext(ctx)
		for i := range n {
			group.Go(func() (err error) {
				ends[i], err = each(ctx, fmt.Sprintf("%s-%d", prefix, i))
				return err
			})
		}
		err = group.Wait()
		for _, end := range ends {
			latest = max(latest, end.Sub(begun))
		}
		return latest, err
	}
	running, err = last(func(ctx context.Context, name string) (time.Time, error) {
		if _, err := r.create(ctx, s, name); err != nil {
			return begun, err
		}
		return r.seen.wait(ctx, name, s.running)
	})
	if err != nil {
		return running, answers, gone, err
	}
	if answers, err = last(r.answers); err != nil {
		return running, answers, gone, err
	}
	begun = time.Now()
	gone, err = last(func(ctx context.Context, name string) (time.Time, error) {
		if _, err := r.remove(ctx, s, name); err != nil {
			return begun, err
		}
		return r.seen.wait(ctx, name, s.gone)
	})
	return running, answers, gone, err
}

// bursts measures several at once.
func (r *rig) bursts(ctx context.Context, sizes []int) (report.Section, error) {
	section := report.Section{Title: "At once, until all are"}
	for _, n := range sizes {
		for _, s := range []struct {
			subject
			name string
			goal float64
		}{{plain, "pod", 0}, {vmi, "VMI", 5000}} {
			fmt.Fprintf(r.log, "%d of a %s at once\n", n, s.name)
			running, answers, gone, err := r.burst(ctx, s.subject, fmt.Sprintf("burst-%s-%d", map[string]string{"pod": "p", "VMI": "v"}[s.name], n), n)
			if err != nil {
				return section, err
			}
			goal := s.goal
			if n != 10 {
				goal = 0
			}
			for _, row := range []struct {
				what string
				d    time.Duration
				goal float64
			}{{"Running", running, goal}, {"answer", answers, 0}, {"gone", gone, 0}} {
				section.Rows = append(section.Rows, report.Row{
					Name: fmt.Sprintf("%d %ss: %s", n, s.name, row.what), Unit: "ms", Kind: report.Value, Goal: row.goal,
					Measured: report.Series{Of: s.name, Samples: []float64{milliseconds(row.d)}},
				})
			}
		}
	}
	return section, nil
}
