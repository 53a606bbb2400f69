package podstatus

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// server is an API server with one pod, which merges conditions as the real one
// does; see apiserver_test for that.
type server struct {
	mu    sync.Mutex
	uid   string
	there map[string]Condition
	calls []string // GET, or PATCH with the types
	// version grows with each change of the pod.
	version int
	fails   error // what each call ends with
}

func (s *server) call(pod Pod, what string) error {
	s.calls = append(s.calls, what)
	switch {
	case s.fails != nil:
		return s.fails
	case pod.UID != s.uid:
		return kubelet.ErrGone
	}
	return nil
}

func (s *server) conditions(_ context.Context, pod Pod) ([]Condition, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.there)), strconv.Itoa(s.version), s.call(pod, "GET")
}

func (s *server) record(_ context.Context, pod Pod, e event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call(pod, "EVENT "+e.reason+": "+e.message)
}

// versions are those of the list of pods.
func (s *server) versions() map[string]Listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]Listed{s.uid: {Version: strconv.Itoa(s.version)}}
}

// restore takes the pod back to former conditions, as a restore of etcd does.
func (s *server) restore(to map[string]Condition, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there, s.version = to, version
}

func (s *server) patch(_ context.Context, pod Pod, all []Condition) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var types []string
	for _, c := range all {
		types = append(types, strings.TrimPrefix(c.Type, "nodevirt.io/")+"="+c.Status)
	}
	if err := s.call(pod, "PATCH "+strings.Join(types, " ")); err != nil {
		return "", err
	}
	for _, c := range all {
		s.there[c.Type] = c
	}
	s.version++
	return strconv.Itoa(s.version), nil
}

// seen are the calls since the last look.
func (s *server) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

var pod = Pod{Namespace: "n", Name: "p", UID: "u"}

// run tests a writer in made-up time.
func run(t *testing.T, test func(*testing.T, *Writer, *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{uid: "u", there: map[string]Condition{}}
		w := newWriter(s, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		test(t, w, s)
		cancel()
		<-done
	})
}

func running(agent bool, name string) Facts {
	f := Facts{Ready: true, Reason: condition.ReasonRunning, Machine: &Machine{Agent: &agent}}
	if name != "" {
		f.Machine.Guest = &condition.Guest{Hostname: name}
	}
	return f
}

func want(t *testing.T, s *server, calls ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(calls, s.seen()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

const first = "PATCH VMReady=True Paused=False LiveMigratable=False AgentConnected=False GuestInfo=False"

// TestLife: a start is one patch, an agent another, an end a third, and what says the same is none.
func TestLife(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		w.Set(pod, running(false, ""))
		want(t, s, first)
		w.Set(pod, running(false, ""))
		time.Sleep(time.Hour)
		want(t, s)
		w.Set(pod, running(true, "")) // the agent connects, and reports a moment later
		time.Sleep(collect / 2)
		w.Set(pod, running(true, "web"))
		time.Sleep(time.Minute)
		want(t, s, "PATCH AgentConnected=True GuestInfo=True")
		w.Set(pod, Facts{Reason: "Completed"})
		want(t, s, "PATCH VMReady=False AgentConnected=False GuestInfo=False")
	})
}

// TestFlapping: what a guest does a thousand times a minute is written a few times.
func TestFlapping(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		w.Set(pod, running(false, ""))
		for n := range 60 * 1000 {
			w.Set(pod, running(n%3 > 0, ""))
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(s.seen()); n < 5 || n > 20 {
			t.Errorf("%d calls in ten minutes", n)
		}
		w.Set(pod, Facts{Reason: "Error", Message: "QEMU ended"})
		synctest.Wait() // not held up by that
		if calls := s.seen(); len(calls) != 1 || !strings.HasPrefix(calls[0], "PATCH VMReady=False") {
			t.Errorf("the end is reported by %v", calls)
		}
	})
}

// TestWrittenAlready: conditions that the API server has lost, or that another has changed, are written again. A pod that
// has not changed is not read.
func TestWrittenAlready(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		w.Set(pod, running(false, ""))
		want(t, s, first)
		w.Seen(s.versions())
		time.Sleep(time.Hour)
		want(t, s)
		s.restore(map[string]Condition{}, 0) // a backup from before the start
		w.Seen(s.versions())
		time.Sleep(time.Minute)
		want(t, s, "GET", first)
		there := maps.Clone(s.there)
		there[condition.VMReady] = Condition{Type: condition.VMReady, Status: "False"}
		s.restore(there, 7)
		w.Seen(s.versions())
		time.Sleep(time.Minute)
		want(t, s, "GET", "PATCH VMReady=True")
		s.restore(s.there, 9) // the kubelet's own change
		w.Seen(s.versions())
		time.Sleep(time.Minute)
		want(t, s, "GET")
		w.Seen(s.versions())
		w.Seen(map[string]Listed{"another": {Version: "1"}})
		time.Sleep(time.Minute)
		want(t, s)
	})
}

// TestThereAgain: a pod that was deleted and is in the API server again, as after a restore, has its conditions written.
func TestThereAgain(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.uid = "another"
		w.Set(pod, running(false, ""))
		want(t, s, first)
		s.uid = "u"
		w.Seen(s.versions())
		time.Sleep(time.Minute)
		want(t, s, "GET", first)
	})
}

// TestOutage: the last facts arrive when the API server is back, and few calls are made until then.
func TestOutage(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.fail(kubelet.ErrAway)
		w.Set(pod, running(false, ""))
		time.Sleep(time.Minute)
		w.Set(pod, running(true, "web"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(s.seen()); n < 60 || n > 140 {
			t.Errorf("%d calls in an hour", n)
		}
		s.fail(nil)
		time.Sleep(mostAway)
		want(t, s, "PATCH VMReady=True Paused=False LiveMigratable=False AgentConnected=True GuestInfo=True")
	})
}

// TestAgain: a new shim reads what the old one wrote, and keeps times of transitions.
func TestAgain(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		begun := time.Now().Truncate(time.Second)
		for _, c := range running(false, "").conditions(begun) {
			s.there[c.Type] = c
		}
		s.there["Ready"] = Condition{Type: "Ready", Status: "True"}
		time.Sleep(time.Hour)
		w.SetAgain(pod, running(false, ""))
		want(t, s, "GET")
		f := running(false, "")
		f.Reason = "OtherWords"
		w.Set(pod, f)
		time.Sleep(time.Minute)
		want(t, s, "PATCH VMReady=True")
		if c := s.there[condition.VMReady]; !c.LastTransitionTime.Equal(begun) || c.Reason != "OtherWords" {
			t.Errorf("%+v, with a transition that was at %v", c, begun)
		}
	})
}

// TestGone: of a pod that is another one by now nothing is written, not even later.
func TestGone(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.uid = "another"
		w.Set(pod, running(false, ""))
		want(t, s, first)
		w.Set(pod, Facts{Reason: "Error"})
		time.Sleep(time.Hour)
		want(t, s)
		w.Forget(pod)
		if len(w.entries) != 0 {
			t.Errorf("%d pods are kept", len(w.entries))
		}
	})
}

// TestConflict: the pod is looked at before the next try.
func TestConflict(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.fail(kubelet.ErrConflict)
		w.Set(pod, running(false, ""))
		want(t, s, first)
		s.fail(nil)
		time.Sleep(2 * leastRetry)
		want(t, s, "GET", first)
	})
}

// TestForbidden: tries grow rare, and other pods don't wait for them.
func TestForbidden(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.fail(errors.New("403 Forbidden"))
		w.Set(pod, running(false, ""))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(s.seen()); n < 15 || n > 25 {
			t.Errorf("%d calls in an hour", n)
		}
		s.fail(nil)
		s.uid = "v"
		w.Set(Pod{Namespace: "n", Name: "q", UID: "v"}, running(false, ""))
		want(t, s, first)
	})
}

// TestRefused: the same is not sent again; something else is.
func TestRefused(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.fail(kubelet.ErrRefused)
		w.Set(pod, running(false, ""))
		time.Sleep(time.Hour)
		want(t, s, first)
		s.fail(nil)
		w.Set(pod, running(true, ""))
		time.Sleep(time.Minute)
		want(t, s, "GET", "PATCH VMReady=True Paused=False LiveMigratable=False AgentConnected=True")
	})
}

// TestAttempts: an older sandbox of the pod neither sets nor forgets facts any
// more.
func TestAttempts(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		newer := pod
		newer.Attempt = 1
		w.Set(newer, running(false, ""))
		want(t, s, first)
		w.Set(pod, Facts{Reason: "Error"})
		w.Forget(pod)
		time.Sleep(time.Hour)
		want(t, s)
		if len(w.entries) != 1 {
			t.Errorf("%d pods are kept", len(w.entries))
		}
	})
}

// TestWithoutASandbox: the reason of a pod without a sandbox is reported once, and then the pod
// forgotten.
func TestWithoutASandbox(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		for range 20 {
			w.SetRefused(pod, Facts{Reason: condition.ReasonCreateFailed, Message: "no such field"})
			time.Sleep(time.Minute)
		}
		want(t, s, "PATCH VMReady=False Paused=False AgentConnected=False GuestInfo=False")
		time.Sleep(2 * idle)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.entries) != 0 {
			t.Errorf("%d pods are kept", len(w.entries))
		}
	})
}

// TestDisabled: without a kubeconfig nothing is kept.
func TestDisabled(t *testing.T) {
	w := New("", slog.New(slog.DiscardHandler))
	w.Set(pod, running(false, ""))
	w.Run(t.Context())
	if len(w.entries) != 0 {
		t.Errorf("%d pods are kept", len(w.entries))
	}
}

// TestEvent: facts that are an event, too, are recorded once, after the conditions. A failure to record one is not repeated: the
// condition says it.
func TestEvent(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		none := Facts{Reason: condition.ReasonNoVM, Message: "no disk", Event: true}
		const patch = "PATCH VMReady=False Paused=False AgentConnected=False GuestInfo=False"
		w.Set(pod, none)
		want(t, s, patch, "EVENT NoVM: no disk")
		w.Set(pod, none)
		time.Sleep(time.Hour)
		want(t, s)
		none.Message = strings.Repeat("x", 2*maxEvent)
		w.Set(pod, none)
		time.Sleep(time.Hour)
		synctest.Wait()
		calls := s.seen()
		if len(calls) != 2 || !strings.HasPrefix(calls[1], "EVENT NoVM: x") || len(calls[1]) > maxEvent+len("EVENT NoVM: ") {
			t.Errorf("%d calls, %.100q", len(calls), calls)
		}
	})
}
