package save

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

const (
	// lease is how long a guest is held after the last order: with what follows, it goes on within
	// ten seconds.
	lease = 8 * time.Second
	// answerTime is how long an order waits for another state, and answerPoll the time between two
	// looks.
	answerTime = 2 * time.Second
	answerPoll = 50 * time.Millisecond
	// maxMessage bounds the text of an error in an answer, in bytes.
	maxMessage = 1 << 10
)

var (
	errLease    = fmt.Errorf("no order held the guest for %s: its controller, or the connection to it, failed", lease)
	errReleased = errors.New("the save was ended before it was complete")
)

// job is the last save of a VM to a volume. It does not outlast the shim: the next one undoes what
// the record has.
type job struct {
	mu      sync.Mutex
	order   order.Save
	state   order.SaveState // empty for no save
	message string
	ctx     context.Context //nolint:containedctx // of the save, which outlasts the order
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	// released is closed when the guest need not be held any more.
	released chan struct{}
}

// begin begins a save, unless one is under way.
func (j *job) begin(ctx context.Context, a order.Save) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy() {
		return fmt.Errorf("%w: the guest's memory is being saved to volume %s", vmerrors.ErrState, j.order.Volume)
	}
	j.order, j.state, j.message, j.released = a, order.SaveWriting, "", make(chan struct{})
	var cancel context.CancelCauseFunc
	j.ctx, cancel = context.WithCancelCause(ctx)
	j.cancel, j.timer = cancel, time.AfterFunc(lease, func() { cancel(errLease) })
	return nil
}

func (j *job) busy() bool { return j.state == order.SaveWriting || j.state == order.SaveHeld }

// renew holds the guest for another while, and reports whether the job is that of a volume.
func (j *job) renew(volume string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == "" || j.order.Volume != volume {
		return false
	}
	if j.busy() && !j.isReleased() {
		j.timer.Reset(lease)
	}
	return true
}

func (j *job) isReleased() bool {
	select {
	case <-j.released:
		return true
	default:
		return false
	}
}

// hold waits until the guest may go on.
func (j *job) hold(ctx context.Context) error {
	if len(j.order.Disks) > 0 {
		j.mu.Lock()
		j.state = order.SaveHeld
		j.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-j.released:
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	j.timer.Stop() // the lease is for the pause
	return nil
}

// done notes how a save has ended.
func (j *job) done(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timer.Stop()
	j.cancel(nil)
	j.state = order.SaveCompleted
	if err != nil {
		j.state, j.message = order.SaveFailed, strings.ToValidUTF8(fields.Clip(err.Error(), maxMessage), "?")
	}
}

// release lets a guest that is held go on, and waits a little for the end of its save. It ends a
// save that is not complete.
func (j *job) release(ctx context.Context, volume string) (order.Saved, error) {
	j.mu.Lock()
	if j.order.Volume == volume && j.busy() && !j.isReleased() {
		if j.state == order.SaveWriting {
			j.cancel(errReleased)
		}
		close(j.released)
	}
	j.mu.Unlock()
	return j.await(ctx, volume, order.SaveWriting, order.SaveHeld)
}

// await returns the state of a volume's save, after a while if it is one of some. A failed save is
// reported once.
func (j *job) await(ctx context.Context, volume string, past ...order.SaveState) (order.Saved, error) {
	deadline := time.After(answerTime)
	for {
		now := j.now(volume)
		if !slices.Contains(past, now.State) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return order.Saved{}, ctx.Err()
		case <-deadline:
			return j.now(volume), nil
		case <-time.After(answerPoll):
		}
	}
}

func (j *job) now(volume string) order.Saved {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == "" || j.order.Volume != volume {
		return order.Saved{Volume: volume, State: order.SaveNone}
	}
	now := order.Saved{Volume: volume, State: j.state, Message: j.message}
	if j.state == order.SaveFailed {
		j.state = ""
	}
	return now
}
