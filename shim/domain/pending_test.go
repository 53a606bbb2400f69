package domain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestUnansweredCall: the result of a call that libvirtd got is open, whatever ends its context.
func TestUnansweredCall(t *testing.T) {
	other := errors.New("the bridge is broken")
	ctx, cancel := context.WithCancelCause(t.Context())
	answer := make(chan struct{})
	defer close(answer)
	begun := make(chan struct{})
	go func() {
		<-begun
		cancel(other) // as an errgroup does when another phase fails
	}()
	_, err := await(ctx, "define", "domain web", func() (int, error) {
		close(begun)
		<-answer
		return 0, nil
	})
	if !errors.Is(err, ErrUnanswered) || !errors.Is(err, other) || err.Error() != "define domain web: the bridge is broken" {
		t.Errorf("error %v", err)
	}
	l := &Lifecycle{conn: &Connection{}}
	if err := l.Define(ctx, "<domain/>"); err == nil || errors.Is(err, ErrUnanswered) {
		t.Errorf("a call that libvirtd did not get: %v", err)
	}
}

// TestPending: the undo of a call that has no answer yet waits for the answer.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pending
		define, start := p.begin("web"), p.begin("web")
		done := p.of("web")
		if p.of("other") != nil {
			t.Error("another domain has pending calls")
		}
		define()
		synctest.Wait()
		select {
		case <-done:
			t.Error("the start is forgotten")
		default:
		}
		start()
		<-done
		if p.of("web") != nil {
			t.Error("it is still pending")
		}
	})
}
