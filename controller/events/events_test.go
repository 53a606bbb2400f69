package events

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
)

// server has the events that it got, and fails as a test says.
type server struct {
	mu   sync.Mutex
	all  []string // "create NAME REASON" and "patch NAME DATA"
	fail func(verb string) error
}

func (s *server) note(verb, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, verb+" "+text)
	if s.fail != nil {
		return s.fail(verb)
	}
	return nil
}

// failWith has the server answer with what a function returns.
func (s *server) failWith(f func(verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

func (s *server) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return e, s.note("create", e.Regarding.Name+" "+e.Reason)
}

func (s *server) Patch(_ context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	name, _, _ := strings.Cut(e.Name, ".")
	return e, s.note("patch", name+" "+string(data))
}

// sending runs a test with a recorder whose events the server gets.
func sending(t *testing.T, test func(t *testing.T, to *server, r clientevents.EventRecorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		assert.NilError(t, corev1.AddToScheme(scheme))
		to := new(server)
		s := NewSender(to, scheme, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		test(t, to, s.Recorder("virtualmachine-controller"))
		cancel()
		assert.NilError(t, <-ended)
	})
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// took returns what the server got since the last time.
func (s *server) took() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.all, ", ")
	s.all = nil
	return all
}

// TestOrder: the events of an object arrive in their order.
func TestOrder(t *testing.T) {
	sending(t, func(t *testing.T, to *server, r clientevents.EventRecorder) {
		r.Eventf(pod("a"), pod("b"), corev1.EventTypeNormal, "Created", "Run", "defined")
		r.Eventf(pod("a"), nil, corev1.EventTypeNormal, "Started", "Run", "started %d", 1)
		assert.Equal(t, to.took(), "create a Created, create a Started")
	})
}

// TestSeries: an event that repeats is counted. One that comes much later, or is of another object, is a new one.
func TestSeries(t *testing.T) {
	sending(t, func(t *testing.T, to *server, r clientevents.EventRecorder) {
		warn := func(name string) { r.Eventf(pod(name), nil, corev1.EventTypeWarning, "FailedCreate", "Create", "no") }
		warn("a")
		warn("b")
		time.Sleep(time.Second)
		to.took()
		warn("a")
		if got := to.took(); !strings.HasPrefix(got, `patch a {"series":{"count":2,`) {
			t.Error(got)
		}
		for range 50 { // in 5 s
			time.Sleep(between / 100)
			warn("a")
		}
		assert.Equal(t, to.took(), "")
		time.Sleep(between)
		warn("a")
		if got := to.took(); !strings.HasPrefix(got, `patch a {"series":{"count":53,`) {
			t.Error(got)
		}
		time.Sleep(gap + time.Second)
		warn("a")
		assert.Equal(t, to.took(), "create a FailedCreate")
		to.failWith(func(verb string) error {
			if verb == "patch" {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "a")
			}
			return nil
		})
		warn("a")
		if got := to.took(); !strings.HasSuffix(got, ", create a FailedCreate") {
			t.Errorf("an event that is gone: %s", got)
		}
	})
}

// TestOutage: an event waits for an API server that does not answer, and not for one that refuses it.
func TestOutage(t *testing.T) {
	sending(t, func(t *testing.T, to *server, r clientevents.EventRecorder) {
		to.failWith(func(string) error { return errors.New("connection refused") })
		r.Eventf(pod("a"), nil, corev1.EventTypeNormal, "Started", "Run", "started")
		assert.Equal(t, to.took(), "create a Started")
		time.Sleep(retry)
		assert.Equal(t, to.took(), "create a Started")
		to.failWith(func(string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "a", errors.New("the namespace is being terminated"))
		})
		time.Sleep(retry)
		assert.Equal(t, to.took(), "create a Started")
		time.Sleep(tries * retry)
		assert.Equal(t, to.took(), "")
	})
}

// TestEnd: events that wait when the sender should end are sent.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		assert.NilError(t, corev1.AddToScheme(scheme))
		to := new(server)
		s := NewSender(to, scheme, slog.New(slog.DiscardHandler))
		r := s.Recorder("virtualmachine-controller")
		r.Eventf(pod("a"), nil, corev1.EventTypeNormal, "Started", "Run", "started")
		r.Eventf(pod("a"), nil, corev1.EventTypeNormal, "Stopped", "Stop", "stopped")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NilError(t, s.Start(ctx))
		assert.Equal(t, to.took(), "create a Started, create a Stopped")
	})
}

// TestBounds: what waits for the API server, and what is remembered, has a bound.
func TestBounds(t *testing.T) {
	sending(t, func(t *testing.T, to *server, r clientevents.EventRecorder) {
		gate := make(chan struct{})
		to.failWith(func(string) error { <-gate; return nil })
		for range 10 * waiting {
			r.Eventf(pod("a"), nil, corev1.EventTypeNormal, "Started", "Run", "started") // does not block
		}
		synctest.Wait()
		close(gate)
		if got := strings.Count(to.took(), "create"); got != 1 {
			t.Errorf("%d events of one series", got)
		}
	})
	seen := newMemory()
	for i := range 100 * remembered {
		seen.Add(uint64(i), sent{})
	}
	if _, ok := seen.Find(0); ok {
		t.Error("an old event is remembered")
	}
	if got := clip(strings.Repeat("é", maxNote)); len(got) > maxNote || !strings.HasSuffix(got, "é...") {
		t.Errorf("a text of %d bytes that ends in %q", len(got), got[len(got)-8:])
	}
}
