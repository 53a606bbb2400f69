package handover

import (
	"context"
	"errors"
)

// take completes the guest, writes taken, and resumes the guest. The target answers
// taken even if the guest cannot be resumed: it may have run.
func (t *Target) take(ctx context.Context, cookie []byte) (message, error) {
	cookie, err := t.vm.Finish(ctx, cookie)
	if err != nil {
		return message{}, err
	}
	t.observe(StepFinished)
	if err := t.put(Taken, ""); err != nil {
		return message{}, err
	}
	t.cookie = cookie
	t.observe(StepTaken)
	if err := t.vm.Resume(ctx); err == nil {
		t.observe(StepResumed)
	}
	return t.decision(), nil
}

// decision returns the answer of a target that has decided.
func (t *Target) decision() message {
	if t.Record().State == Taken {
		return message{Kind: kindTaken, Cookie: t.cookie}
	}
	return message{Kind: kindRefused, Reason: t.Record().Reason}
}

// refused refuses, unless the target has decided, and returns the answer. Without a
// record of a decision there is no answer.
func (t *Target) refused(reason error) message {
	if t.Record().State == Incoming {
		if err := t.put(Refused, reason.Error()); err != nil {
			return message{Reason: errors.Join(reason, err).Error()}
		}
		t.observe(StepRefused)
	}
	return t.decision()
}

// Refuse refuses the guest if the target has not decided, and removes what was
// prepared. The caller's cancellation of a migration ends here, too. Without an error
// the target has decided and has carried that out.
func (t *Target) Refuse(ctx context.Context, reason string) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limits.Local)
	defer cancel()
	if err := t.turn.take(within); err != nil {
		return err
	}
	answer := t.refused(errors.New(reason))
	t.turn.end()
	if answer.Kind == "" {
		return errors.New(answer.Reason)
	}
	return t.Recover(ctx)
}

// Recover carries out the decision from the record alone, after a restart of the shim
// or an error. A target that has not decided refuses, as its QEMU ended with the shim
// that prepared it. Recover returns [ErrLost] if the guest ended.
func (t *Target) Recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limits.Local)
	defer cancel()
	if err := t.turn.take(ctx); err != nil {
		return err
	}
	defer t.turn.end()
	if t.Record().State == Incoming {
		if answer := t.refused(errors.New("the shim of the target restarted")); answer.Kind == "" {
			return errors.New(answer.Reason)
		}
	}
	if t.Record().Ended {
		return nil
	}
	act := t.vm.Discard
	if t.Record().State == Taken {
		act = t.vm.Resume
	}
	lost := act(ctx)
	if lost != nil && !errors.Is(lost, ErrLost) {
		return lost
	}
	if err := t.end(); err != nil {
		return errors.Join(lost, err)
	}
	t.observe(StepTargetEnded)
	return lost
}
