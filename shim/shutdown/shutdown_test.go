package shutdown

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnderway: one answer is enough, and none is a node that runs on.
func TestUnderway(t *testing.T) {
	yes := question{"yes", func(context.Context) (bool, error) { return true, nil }}
	no := question{"no", func(context.Context) (bool, error) { return false, nil }}
	fails := question{"fails", func(context.Context) (bool, error) { return false, errors.New("no D-Bus") }}
	for name, tt := range map[string]struct {
		questions []question
		want      bool
	}{
		"running":            {[]question{no, no}, false},
		"systemd stops":      {[]question{yes, fails}, true},
		"the kubelet delays": {[]question{no, yes}, true},
		"only logind":        {[]question{fails, yes}, true},
		"no systemd":         {[]question{fails, fails}, false},
	} {
		n := &Node{slog.New(slog.DiscardHandler), tt.questions}
		if got := n.Underway(t.Context()); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestUnderwayEnds: a D-Bus that does not answer holds up no caller, and a caller that gives up, as the shim that stops
// too, still gets an answer.
func TestUnderwayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := question{"hangs", func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }}
		stops := question{"systemd", func(ctx context.Context) (bool, error) { return ctx.Err() == nil, ctx.Err() }}
		n := &Node{slog.New(slog.DiscardHandler), []question{hangs}}
		if n.Underway(t.Context()) {
			t.Error("no answer means a shutdown")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n.questions = []question{stops}
		if !n.Underway(ctx) {
			t.Error("the caller's end was taken for the answer")
		}
	})
}

// TestBooted: the node booted before the test, and once.
func TestBooted(t *testing.T) {
	first := Booted()
	if first.IsZero() || !first.Before(time.Now()) {
		t.Fatalf("booted at %s", first)
	}
	if again := Booted(); again.Sub(first).Abs() > time.Second {
		t.Errorf("booted at %s and at %s", first, again)
	}
}

// TestBootID: a run of the node has one name.
func TestBootID(t *testing.T) {
	first := BootID()
	if len(first) != 36 || BootID() != first {
		t.Errorf("%q and %q", first, BootID())
	}
}
