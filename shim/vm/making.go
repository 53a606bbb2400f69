package vm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// making is the work of a CreateContainer that may take longer than a call. It goes
// on while calls for the same container come and go:
//
//	at work ──▶ ready ──▶ claimed by a call
//	   │          │
//	   └──────────┴──▶ given up: the pod is stopped, another machine is asked for,
//	                   nobody asks any more
//
// Until a call claims it, the container is told of nowhere: nobody knows its id.
type making struct {
	*creation
	progress progress
	ready    chan struct{} // closed when the work is done or failed
	err      error         // set before
	claims   chan claim
	gone     chan struct{} // closed when nothing is left to claim
	giveUp   context.CancelCauseFunc

	mu     sync.Mutex
	asking int         // calls that wait
	idle   *time.Timer // runs while there are none
}

// claim is a call that takes what was made.
type claim struct {
	config *runtimeapi.ContainerConfig
	done   chan<- error
}

// Why a making is given up.
var (
	errStopped   = errors.New("given up: the pod is stopped or removed")
	errChanged   = errors.New("given up: the same container is asked for in another way")
	errForgotten = errors.New("given up: nobody asked for it any more")
)

// begun returns the making that an earlier call for the same container began, nil if
// there is none. One of another machine is given up first.
func (m *Manager) begun(ctx context.Context, sandbox record.Sandbox, config *runtimeapi.ContainerConfig) (*making, error) {
	wanted := newRecord(sandbox, config)
	m.mu.RLock()
	k := m.makings[containerName(wanted)]
	m.mu.RUnlock()
	if k == nil {
		return nil, nil
	}
	asked, err := vmspec.FromCRI(sandbox.Config.Value, config)
	same := err == nil && asked.Equal(k.asked) &&
		config.GetImage().GetImage() == k.rec.Config.Value.GetImage().GetImage() && k.rec.SandboxID == sandbox.ID
	if same {
		return k, nil
	}
	k.giveUp(errChanged)
	select {
	case <-k.gone:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait until an earlier try for container %q is taken back: %w",
			config.GetMetadata().GetName(), ctx.Err())
	}
}

// begin makes what a creation lacks in the background.
func (m *Manager) begin(n *creation) *making {
	k := &making{
		creation: n,
		ready:    make(chan struct{}), gone: make(chan struct{}), claims: make(chan claim),
	}
	ctx, giveUp := context.WithCancelCause(m.tasks.ctx)
	k.giveUp = giveUp
	k.idle = time.AfterFunc(m.GiveUp, func() { giveUp(errForgotten) })
	m.mu.Lock()
	m.makings[containerName(n.rec)] = k
	m.mu.Unlock()
	m.tasks.run(func(context.Context) {
		defer giveUp(nil)
		k.work(ctx)
	})
	return k
}

// work makes the files and hands them to a claim, or takes everything back.
func (k *making) work(ctx context.Context) {
	begun := time.Now()
	k.err = k.makeFiles(ctx, func(disk string, p Progress) {
		if k.progress.set(disk, p) {
			k.log(k.rec).Info("expanding a disk", "disk", disk, "progress", percent(p))
		}
	})
	k.Metrics.Expanded(time.Since(begun), k.err)
	if k.err == nil {
		k.log(k.rec).Info("the disks of a VM are expanded", "duration", time.Since(begun))
	} else {
		k.log(k.rec).Warn("expanding the disks of a VM failed", "error", k.err)
	}
	close(k.ready)
	claimed := k.err == nil && k.handOver(ctx)
	var err error
	if !claimed {
		err = unwind(ctx, k.undo)
	}
	k.idle.Stop()
	k.Manager.mu.Lock()
	delete(k.makings, containerName(k.rec))
	k.Manager.mu.Unlock()
	close(k.gone)
	k.unlock()
	if err != nil {
		k.log(k.rec).Error("taking back a container that was not made failed, which the next start does", "error", err)
	}
}

// handOver waits for a call that takes what was made.
func (k *making) handOver(ctx context.Context) bool {
	for {
		select {
		case c := <-k.claims:
			err := k.finish(c.config)
			c.done <- err
			if err == nil {
				return true
			}
		case <-ctx.Done():
			k.log(k.rec).Info("a container that was made is taken back", "why", context.Cause(ctx))
			return false
		}
	}
}

// await waits for a making, and claims what it made for a call. A call that ends
// before says how far it is.
func (k *making) await(ctx context.Context, config *runtimeapi.ContainerConfig) (string, error) {
	k.ask(1)
	defer k.ask(-1)
	waiting, cancel := beforeDeadline(ctx)
	defer cancel()
	name := config.GetMetadata().GetName()
	select {
	case <-k.ready:
	case <-waiting.Done():
		return "", fmt.Errorf("container %q: %w: %s; the work goes on, try again", name, ErrUnfinished, k.progress.String())
	}
	if k.err != nil {
		<-k.gone // so that the next try finds the name free
		return "", k.err
	}
	done := make(chan error, 1)
	select {
	case k.claims <- claim{config, done}:
		return k.rec.ID, <-done
	case <-k.gone:
		return "", fmt.Errorf("container %q was taken back or claimed by another call meanwhile: %w", name, ErrExists)
	case <-waiting.Done():
		return "", fmt.Errorf("container %q: %w: it is ready; try again", name, ErrUnfinished)
	}
}

// ask notes that a call begins or ends to wait.
func (k *making) ask(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking += n; k.asking == 0 {
		k.idle.Reset(k.GiveUp)
	} else {
		k.idle.Stop()
	}
}

// lastWords is how long before a call's deadline it is answered, so that the caller
// learns more than that it took too long; less of a short one.
const lastWords = 5 * time.Second

func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	early := min(lastWords, time.Until(deadline)/4)
	return context.WithDeadline(ctx, deadline.Add(-early))
}

// giveUpMaking ends the making of a machine that is stopped or removed.
func (m *Manager) giveUpMaking(c *machine) {
	m.mu.RLock()
	k := m.makings[containerName(c.record())]
	m.mu.RUnlock()
	if k != nil && k.c == c {
		k.giveUp(errStopped)
	}
}
