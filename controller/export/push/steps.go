package push

import "log/slog"

// stepPercent is how often a step is logged.
const stepPercent = 10

// steps logs how far a step is.
type steps struct {
	log   *slog.Logger
	doing string
	// total and done are in bytes, and logged is in percent.
	total, done, logged int64
}

func (s *steps) add(n int64) { s.set(s.done + n) }

func (s *steps) set(done int64) {
	s.done = min(done, s.total)
	if percent := s.done * 100 / s.total; percent >= s.logged+stepPercent {
		s.logged = percent - percent%stepPercent
		s.log.Info("pushing a disk", "step", s.doing, "percent", s.logged)
	}
}
