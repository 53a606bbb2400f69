package bench

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// side is one of the things that are compared: do is timed, tidy is not.
type side struct {
	of       string
	do, tidy func(context.Context) error
}

// turns runs the sides in turn, each round beginning with another, and returns the times of each
// in milliseconds. A round before the first is not counted: it fills caches.
func turns(ctx context.Context, rounds int, sides ...side) ([]report.Series, error) {
	times := make([]report.Series, len(sides))
	for i, s := range sides {
		times[i].Of = s.of
	}
	for round := range rounds + 1 {
		for i := range sides {
			i = (i + round) % len(sides)
			took, err := sides[i].turn(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				times[i].Add(took)
			}
		}
	}
	return times, nil
}

func (s side) turn(ctx context.Context) (ms float64, err error) {
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
