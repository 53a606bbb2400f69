package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// settle asks the target for its decision until it answers, [Source.Decide] has one, or ctx ends. It gives the
// turn away between two questions.
func (s *Source) settle(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	for {
		answer, err := s.outcome(ctx, dial)
		if err == nil {
			return s.obey(ctx, answer)
		}
		s.turn.end()
		select {
		case <-ctx.Done():
		case <-time.After(s.limits.Ask):
		}
		if err := s.turn.take(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		switch rec := s.Record(); {
		case rec.State == Left:
			return nil
		case rec.State == Kept:
			return fmt.Errorf("the target refuses: %s", rec.Reason)
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", ErrUnsettled, err)
		}
	}
}

func (s *Source) outcome(ctx context.Context, dial func(context.Context) (net.Conn, error)) (Answer, error) {
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	conn, err := s.open(ctx, dial)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return s.ask(ctx, conn, s.message(kindOutcome, message{}))
}

// ask asks the target for its decision, until ctx ends. Then the connection is closed.
func (s *Source) ask(ctx context.Context, conn net.Conn, m message) (Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return ask(conn, m, s.limits.Answer)
}

// interruptible returns a context that also ends when [Source.Decide] waits for its turn.
func (s *Source) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.interrupt:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// obey carries out an answer of the target.
func (s *Source) obey(ctx context.Context, a Answer) error {
	s.observe(StepAnswered)
	err := s.decide(ctx, a)
	if a.State == Refused {
		err = errors.Join(fmt.Errorf("the target refuses: %s", a.Reason), err)
	}
	return err
}

// Decide ends a migration whose guest is handed over, by an answer that arrived on
// another way than the migration's connection: the target's own, or [Refused] because
// the target's node is deleted or out of service. Only the caller knows that the node
// cannot run the guest. It ends a question to the target, which may take long.
func (s *Source) Decide(ctx context.Context, a Answer) error {
	if err := s.turn.demand(ctx, s.interrupt); err != nil {
		return err
	}
	defer s.turn.end()
	rec := s.Record()
	switch {
	case a.State != Taken && a.State != Refused:
		return fmt.Errorf("%q is no decision about migration %s", a.State, rec.Migration)
	case rec.State != HandedOver:
		return fmt.Errorf("migration %s is %s, not handed over: nothing to decide", rec.Migration, rec.State)
	}
	return s.decide(ctx, a)
}

// decide writes the decision and carries it out. The caller has stopped to use the
// connection on which the target could still take the guest, or has never sent it.
func (s *Source) decide(ctx context.Context, a Answer) error {
	state, step := Kept, StepKept
	if a.State == Taken {
		state, step = Left, StepLeft
	}
	if err := s.put(state, a.Reason); err != nil {
		// The target's decision lasts, so that acting on it is safe. A source that has
		// not handed over has no other decision to make.
		return errors.Join(err, s.act(ctx, state, a.cookie))
	}
	s.observe(step)
	if err := s.act(ctx, state, a.cookie); err != nil {
		return err
	}
	return s.end()
}

// act carries out a decision, also after the caller's context has ended.
func (s *Source) act(ctx context.Context, state State, cookie []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.Local)
	defer cancel()
	if state == Left {
		return s.vm.Leave(ctx, cookie)
	}
	return s.vm.Keep(ctx)
}

func (s *Source) end() error {
	if err := s.ledger.end(); err != nil {
		return err
	}
	s.observe(StepSourceEnded)
	return nil
}

// Recover ends a migration from its record alone, after a restart of the shim or an
// error. It asks the target if need be, until ctx ends, and returns [ErrUnsettled] if
// there is no answer. It returns nil if the record has ended.
func (s *Source) Recover(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.end()
	rec := s.Record()
	if rec.Ended {
		return nil
	}
	switch rec.State {
	case Sending:
		return s.decide(ctx, Answer{State: Refused, Reason: "the shim of the source restarted"})
	case Kept:
		return s.finish(ctx, Kept)
	case Left:
		return s.finish(ctx, Left)
	}
	// Only this shim resumes a guest that is handed over, and only after a refusal: the
	// record of that was not written.
	within, cancel := context.WithTimeout(ctx, s.limits.Local)
	defer cancel()
	running, err := s.vm.Running(within)
	if err != nil {
		return err
	}
	if running {
		return s.decide(ctx, Answer{State: Refused, Reason: "the target refused"})
	}
	if err := s.settle(ctx, dial); errors.Is(err, ErrUnsettled) || !s.Record().Ended {
		return err
	}
	return nil
}

func (s *Source) finish(ctx context.Context, state State) error {
	if err := s.act(ctx, state, nil); err != nil {
		return err
	}
	return s.end()
}
