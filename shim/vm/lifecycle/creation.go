package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// creation is the work of a CreateContainer that may take longer than one call.
// It goes on while calls for the same container come and go:
//
//	at work ──▶ ready ──▶ collected by a call
//	   │          │
//	   └──────────┴──▶ cancelled: the pod is stopped, another VM is asked for, or
//	                   no call has asked for the container for some time
//
// Until a call collects it, no list shows the container: no caller knows its id.
type creation struct {
	creator  *creator
	draft    *draft
	progress progress
	ready    chan struct{} // closed when the work is done or has failed
	err      error         // set before ready is closed
	calls    chan collect
	gone     chan struct{} // closed when nothing is left to collect
	cancel   context.CancelCauseFunc

	mu      sync.Mutex
	waiting int         // calls that wait
	idle    *time.Timer // runs while there are none
}

// collect is a call that takes what was made.
type collect struct {
	config *runtimeapi.ContainerConfig
	done   chan<- error
}

// Why a creation is cancelled.
var (
	errStopped   = errors.New("cancelled: the pod is stopped or removed")
	errChanged   = errors.New("cancelled: the same container is requested with other settings")
	errForgotten = errors.New("cancelled: no call has asked for it any more")
)

// earlier returns the creation that an earlier call for the same container began,
// nil if there is none. If the call asks for another VM, earlier cancels the
// creation first.
func (c *creator) earlier(ctx context.Context, sandbox record.Sandbox, config *runtimeapi.ContainerConfig) (*creation, error) {
	k := c.pending.find(table.Name(newRecord(sandbox, config)))
	if k == nil {
		return nil, nil
	}
	asked, err := vmspec.FromCRI(sandbox.Config.Value, config)
	r := k.draft.rec
	same := err == nil && asked.Equal(k.draft.asked) &&
		config.GetImage().GetImage() == r.Config.Value.GetImage().GetImage() && r.SandboxID == sandbox.ID
	if same {
		return k, nil
	}
	k.cancel(errChanged)
	select {
	case <-k.gone:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait until an earlier attempt at container %q is undone: %w",
			config.GetMetadata().GetName(), ctx.Err())
	}
}

// begin makes what is missing of a draft in the background. Its trace is the call's.
func (c *creator) begin(call context.Context, n *draft) *creation {
	k := &creation{
		creator: c, draft: n,
		ready: make(chan struct{}), gone: make(chan struct{}), calls: make(chan collect),
	}
	ctx, cancel := context.WithCancelCause(tracing.With(c.tasks.Context(), call))
	k.cancel = cancel
	k.idle = time.AfterFunc(c.timeout, func() { cancel(errForgotten) })
	c.pending.add(k)
	c.tasks.Run(func(context.Context) {
		defer cancel(nil)
		k.work(ctx)
	})
	return k
}

// work makes the files and hands them to a call, or undoes everything.
func (k *creation) work(ctx context.Context) {
	begun := time.Now()
	log := table.Logger(k.creator.log, k.draft.rec)
	k.err = k.creator.makeFiles(ctx, k.draft, func(disk string, p Progress) {
		if k.progress.set(disk, p) {
			log.Info("expanding a disk", "disk", disk, "progress", percent(p))
		}
	})
	k.creator.metrics.Expanded(time.Since(begun), k.err)
	if k.err == nil {
		log.Info("the disks of a VM are expanded", "duration", time.Since(begun))
	} else {
		log.Warn("expanding the disks of a VM failed", "error", k.err)
	}
	close(k.ready)
	collected := k.err == nil && k.handOver(ctx)
	var err error
	if !collected {
		err = unwind(ctx, k.draft.undo)
	}
	k.idle.Stop()
	k.creator.pending.remove(k)
	close(k.gone)
	k.draft.unlock()
	if err != nil {
		log.Error("undoing the creation of a container failed; the next start of the shim repeats it", "error", err)
	}
}

// handOver waits for a call that takes what was made.
func (k *creation) handOver(ctx context.Context) bool {
	for {
		select {
		case c := <-k.calls:
			err := k.creator.finish(k.draft, c.config)
			c.done <- err
			if err == nil {
				return true
			}
		case <-ctx.Done():
			table.Logger(k.creator.log, k.draft.rec).Info("a container that was made is undone", "why", context.Cause(ctx))
			return false
		}
	}
}

// await waits for a creation, and collects what it made for a call. A call that
// ends before returns how far the creation is.
func (k *creation) await(ctx context.Context, config *runtimeapi.ContainerConfig) (string, error) {
	k.wait(1)
	defer k.wait(-1)
	waiting, cancel := beforeDeadline(ctx)
	defer cancel()
	name := config.GetMetadata().GetName()
	select {
	case <-k.ready:
	case <-waiting.Done():
		return "", fmt.Errorf("container %q: %w: %s; the work goes on, try again", name, vmerrors.ErrUnfinished, k.progress.String())
	}
	if k.err != nil {
		<-k.gone // so that the next try finds the name free
		return "", k.err
	}
	done := make(chan error, 1)
	select {
	case k.calls <- collect{config, done}:
		err := <-done
		if err == nil {
			<-k.gone // so that a caller who has the id finds the creation ended
		}
		return k.draft.rec.ID, err
	case <-k.gone:
		return "", fmt.Errorf("container %q was undone or collected by another call meanwhile: %w", name, vmerrors.ErrExists)
	case <-waiting.Done():
		return "", fmt.Errorf("container %q: %w: it is ready; try again", name, vmerrors.ErrUnfinished)
	}
}

// wait counts the calls that wait, up or down.
func (k *creation) wait(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting += n; k.waiting == 0 {
		k.idle.Reset(k.creator.timeout)
	} else {
		k.idle.Stop()
	}
}

// answerTime is how long before its deadline a call is answered, so that the
// caller learns more than that the call took too long. A short call is answered
// later.
const answerTime = 5 * time.Second

func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	early := min(answerTime, time.Until(deadline)/4)
	return context.WithDeadline(ctx, deadline.Add(-early))
}
