package vm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// atMost bounds what is waited for by a limit of the shim's own, whose end is told
// apart from that of a client's deadline.
func atMost(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
}

// tasks are what goes on in the background, beside the calls, until the
// manager is closed.
type tasks struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     *sync.WaitGroup
}

func newTasks() tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return tasks{ctx: ctx, cancel: cancel, wg: &sync.WaitGroup{}}
}

// run starts a task, which has to end when its context does.
func (t tasks) run(task func(context.Context)) {
	t.wg.Go(func() { task(t.ctx) })
}

// stop ends all tasks and waits for them. None may be started afterwards.
func (t tasks) stop() {
	t.cancel()
	t.wg.Wait()
}
