package bench

import (
	"context"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// side is one of two things that are compared: do is timed, tidy is not.
type side struct {
	of       string
	do, tidy func(context.Context) error
}

// turns runs both sides in turn, the one that begins alternating, and returns the times in
// milliseconds. A round before the first is not counted: it fills caches.
func turns(ctx context.Context, rounds int, a, b side) (timesA, timesB report.Series, err error) {
	timesA.Of, timesB.Of = a.of, b.of
	for round := range rounds + 1 {
		order := []side{a, b}
		if round%2 == 1 {
			order = []side{b, a}
		}
		for _, s := range order {
			took, err := s.turn(ctx)
			if err != nil {
				return timesA, timesB, err
			}
			switch {
			case round == 0:
			case s.of == a.of:
				timesA.Add(took)
			default:
				timesB.Add(took)
			}
		}
	}
	return timesA, timesB, nil
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
