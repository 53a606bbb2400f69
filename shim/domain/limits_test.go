package domain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestCallsEnd: a call that libvirtd does not answer ends with its caller, or after a time if the caller has none, and the
// error names the call and the domain. A call inside another one waits, and so does one that copies a guest's memory.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, answer <-chan struct{}) (time.Duration, error) {
			begun := time.Now()
			_, err := await(ctx, "resume", "domain web", func() (struct{}, error) {
				<-answer
				return struct{}{}, nil
			})
			return time.Since(begun), err
		}
		never := make(chan struct{})
		defer close(never)
		task, cancel := context.WithCancel(t.Context())
		defer cancel()
		took, err := wait(task, never)
		if took != bounds.CallTime || !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrUnanswered) ||
			!strings.HasPrefix(err.Error(), "resume domain web: ") {
			t.Errorf("without a deadline: %v after %s", err, took)
		}
		within, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if took, err := wait(within, never); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v after %s", err, took)
		}
		for name, ctx := range map[string]context.Context{"inside another call": context.WithoutCancel(task), "a copy of memory": patient(task)} {
			answer, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := wait(ctx, answer)
				ended <- err
			}()
			time.Sleep(10 * bounds.CallTime)
			select {
			case err := <-ended:
				t.Errorf("%s ended: %v", name, err)
			default:
				close(answer)
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

// TestUnansweredCallsAreCounted: calls about a domain that libvirtd does not answer leave threads to those about others, whatever
// their callers do.
func TestUnansweredCallsAreCounted(t *testing.T) {
	c := &Connection{unanswered: newOpen()}
	var ends []func()
	for range bounds.DomainOpenCalls {
		end, err := c.open("read", "domain hangs")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	_, err := c.open("resume", "domain hangs")
	if !errors.Is(err, ErrUnavailable) || !strings.HasPrefix(err.Error(), "resume domain hangs: ") {
		t.Errorf("a call too many: %v", err)
	}
	if _, err := c.open("resume", "domain web"); err != nil {
		t.Error(err)
	}
	ends[0]()
	if _, err := c.open("resume", "domain hangs"); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}
