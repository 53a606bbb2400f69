package admission

import (
	"context"
	"runtime"

	"github.com/nodevirt/nodevirt/internal/turns"
)

// longTurns limits how many long reviews run at the same time: of large objects, and of those that are compared with many
// presets. One processor is left to the others, which take milliseconds: Go's scheduler has a review of another namespace
// wait for up to 10 ms each time that it waits for a read, while all processors work on long ones.
func longTurns() *turns.Turns {
	n := max(1, runtime.GOMAXPROCS(0)-1)
	return turns.New("other long reviews", n, n)
}

// long is a review's turn among the long ones, which it takes once it is known to be long.
type long struct {
	turns     *turns.Turns
	namespace string
	release   func()
}

// longKey is the key of a review's *long in its context.
type longKey struct{}

// takeLong waits for the turn of a review that is long, unless it has it.
func takeLong(ctx context.Context) error {
	l, _ := ctx.Value(longKey{}).(*long)
	if l == nil || l.release != nil {
		return nil
	}
	release, err := l.turns.Take(ctx, l.namespace, func() {})
	l.release = release
	return err
}

// end releases the turn, if the review has it.
func (l *long) end() {
	if l.release != nil {
		l.release()
	}
}
