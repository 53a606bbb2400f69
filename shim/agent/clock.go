package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Time returns how far the guest's clock is ahead of the node's, within margin; negative for a clock that
// is behind.
func (q *Queries) Time(ctx context.Context) (ahead, margin time.Duration, err error) {
	begun := time.Now()
	var nanoseconds int64
	if err := q.agent.call(ctx, "guest-get-time", nil, smallAnswer, &nanoseconds); err != nil {
		return 0, 0, err
	}
	margin = time.Since(begun) / 2
	return time.Unix(0, nanoseconds).Sub(begun.Add(margin)), margin, nil
}

// SetTime sets the guest's clock, and its hardware clock to the same time. Some agents set the first
// alone, and return an error that is no [ErrDisabled].
func (a *Actions) SetTime(ctx context.Context, to time.Time) error {
	return a.agent.call(ctx, "guest-set-time", map[string]int64{"time": to.UnixNano()}, smallAnswer, nil)
}

// maxLag is how far a guest's clock may differ. A smaller difference than an agent's answer takes is not
// seen.
const maxLag = 100 * time.Millisecond

// FollowTime sets the guest's clock if it is not ahead of the node's by a time, which is mostly 0. It
// returns by how much it was wrong; 0 for a clock that it did not set.
func (a *Agent) FollowTime(ctx context.Context, ahead time.Duration) (time.Duration, error) {
	has, margin, err := a.Queries.Time(ctx)
	if err != nil {
		return 0, err
	}
	wrong := has - ahead
	if wrong.Abs() <= maxLag+margin {
		return 0, nil
	}
	err = a.Actions.SetTime(ctx, time.Now().Add(ahead+margin))
	if err == nil {
		return wrong, nil
	}
	// Without its program for the hardware clock, an agent fails after it has set the other. QEMU's
	// hardware clock follows the node's in any case.
	if _, refused := errors.AsType[*refusal](err); !refused {
		return 0, err
	}
	if has, margin, again := a.Queries.Time(ctx); again == nil && (has-ahead).Abs() <= maxLag+margin {
		return wrong, nil
	}
	return 0, fmt.Errorf("its clock is wrong by %s: %w", wrong.Round(time.Millisecond), err)
}
