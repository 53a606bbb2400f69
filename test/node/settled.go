package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// endTime bounds the wait for processes that got a signal to end.
const endTime = time.Minute

// Settled is Leftovers, when it has been the same for a while: containerd answers that a pod has gone a
// moment before the pod's last process has. It is what a test begins with.
func (n *Node) Settled(ctx context.Context) (Census, error) {
	before, err := n.Leftovers(ctx)
	same := 0
	for end := time.Now().Add(endTime); same < 3; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return nil, errors.Join(errors.New("what is in the node changes all the time"), err, context.Cause(ctx))
		}
		now, nowErr := n.Leftovers(ctx)
		if same++; err != nil || nowErr != nil || len(now.Diff(before)) > 0 {
			same = 0
		}
		before, err = now, nowErr
	}
	return before, nil
}

// Since returns what came and went since before, as [Census.Diff], but for some kinds. Where that
// are processes alone, they are given the time to end.
func (n *Node) Since(ctx context.Context, before Census, but ...string) ([]string, error) {
	for end := time.Now().Add(endTime); ; time.Sleep(20 * time.Millisecond) {
		now, err := n.Leftovers(ctx)
		if err != nil && time.Now().Before(end) && ctx.Err() == nil {
			continue // what went while it was looked at
		}
		if err != nil {
			return nil, err
		}
		diff := slices.DeleteFunc(now.Diff(before), func(line string) bool {
			return slices.Contains(but, strings.Fields(line)[1])
		})
		lasting := slices.ContainsFunc(diff, func(line string) bool { return !strings.HasPrefix(line, "+ process ") })
		if len(diff) == 0 || lasting || time.Now().After(end) {
			return diff, nil
		}
		if ctx.Err() != nil {
			return diff, context.Cause(ctx)
		}
	}
}

// SameAgain compares the node with what it was, and waits a little: some of what ends does so a moment
// after the call that ended it. Processes go by their names alone: tests restart the node's daemons.
func (n *Node) SameAgain(ctx context.Context, before Census, within time.Duration) error {
	before = before.byName()
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		now, err := n.Leftovers(ctx)
		if err == nil {
			diff := now.byName().Diff(before)
			if len(diff) == 0 {
				return nil
			}
			err = fmt.Errorf("the node holds other things than before:\n%s", strings.Join(diff, "\n"))
		}
		if time.Since(begun) > within {
			return err
		}
	}
}
