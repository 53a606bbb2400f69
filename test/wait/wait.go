// Package wait makes tests wait for what other processes and goroutines do. It owns the pace and the
// limit of waiting, so that no suite has its own. It asks from the caller's goroutine, unlike
// gotest.tools/v3/poll: a question may end the test.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

const (
	// Patience bounds each wait. Emulated guests on a busy machine are slow.
	Patience = 5 * time.Minute
	// The first and the longest pause between two questions. A question that takes longer than the
	// longest pause is followed by a pause of the question's length: kubectl in a loop would slow down
	// what it asks about.
	firstPause, longestPause = 2 * time.Millisecond, 100 * time.Millisecond
)

var errNotYet = errors.New("not yet")

// Until asks until the answer is yes. It ends the test after [Patience]; what names the awaited state.
func Until(t testing.TB, what string, ask func() bool) {
	t.Helper()
	Success(t, what, func(context.Context) error {
		if !ask() {
			return errNotYet
		}
		return nil
	})
}

// Success tries until there is no error. It ends the test with the last error after [Patience].
func Success(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	if err := Do(t.Context(), try); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// Do tries until there is no error. It returns the last error once ctx has ended or [Patience] is
// over. try gets a context with that limit.
func Do(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	start := time.Now()
	var last error
	for pause := firstPause; ; pause = min(pause*5/4, longestPause) {
		asked := time.Now()
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // an attempt that the limit cut off explains nothing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("given up after %s: %w", time.Since(start).Round(time.Second), last)
		case <-time.After(max(pause, time.Since(asked))):
		}
	}
}
