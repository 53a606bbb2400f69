package bench

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// side is one of the things that are compared: do is timed, what comes before and after is not, and
// may be nil.
type side struct {
	of                string
	prepare, do, tidy func(context.Context) error
}

// turns runs the sides in turn, each round beginning with another, and returns the times of each
// in milliseconds. A round before the first is not counted: it fills caches.
func turns(ctx context.Context, rounds int, sides ...side) ([]report.Series, error) {
	var all []gauge
	for _, s := range sides {
		all = append(all, gauge{s.of, s.turn})
	}
	return gaugeTurns(ctx, rounds, all...)
}

// gauge is one of the things that are compared, and what a turn of it measures.
type gauge struct {
	of   string
	read func(context.Context) (float64, error)
}

// gaugeTurns is as turns.
func gaugeTurns(ctx context.Context, rounds int, all ...gauge) ([]report.Series, error) {
	series := make([]report.Series, len(all))
	for i, g := range all {
		series[i].Of = g.of
	}
	for round := range rounds + 1 {
		for i := range all {
			i = (i + round) % len(all)
			v, err := all[i].read(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				series[i].Add(v)
			}
		}
	}
	return series, nil
}

func (s side) turn(ctx context.Context) (ms float64, err error) {
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	if err := s.do(ctx); err != nil {
		return 0, err
	}
	ms = milliseconds(time.Since(begun))
	if s.tidy == nil {
		return ms, nil
	}
	return ms, s.tidy(ctx)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
