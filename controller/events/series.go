package events

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/controller/recent"
)

const (
	// gap ends a series: an event that comes later is a new one. Client-go has the same.
	gap = 6 * time.Minute
	// between is the time between two updates of a series.
	between = 10 * time.Second
	// remembered is how many events one sender remembers, or up to twice as many.
	remembered = 128
	// tries bounds how often an event is sent while the API server is away, retry is the time between two.
	tries = 12
	retry = 10 * time.Second
	// requestTime bounds one request.
	requestTime = 10 * time.Second
)

// sent is an event that may repeat: its series, and when the API server got that.
type sent struct {
	namespace, name string
	count           int32
	last, updated   time.Time
}

func newMemory() *recent.Values[uint64, sent] { return recent.New[uint64, sent](remembered) }

// series sends events, and counts those that repeat. One goroutine at a time may use it.
type series struct {
	to   sink
	log  *slog.Logger
	seed maphash.Seed
	now  func() time.Time
	seen *recent.Values[uint64, sent]
}

// key is what the events of a series have in common.
type key struct {
	kind, reason, action, controller string
	regarding, related               corev1.ObjectReference
}

// send creates an event, or counts it in its series.
func (s *series) send(ctx context.Context, e *eventsv1.Event) {
	k := key{e.Type, e.Reason, e.Action, e.ReportingController, e.Regarding, corev1.ObjectReference{}}
	if e.Related != nil {
		k.related = *e.Related
	}
	sum := maphash.Comparable(s.seed, k)
	was, ok := s.seen.Find(sum)
	if !ok || e.EventTime.Sub(was.last).Abs() > gap {
		s.seen.Add(sum, sent{namespace: e.Namespace, name: e.Name, count: 1, last: e.EventTime.Time, updated: e.EventTime.Time})
		s.create(ctx, e)
		return
	}
	was.count++
	was.last = e.EventTime.Time
	if was.count == 2 || was.last.Sub(was.updated).Abs() >= between {
		was.updated = was.last
		if !s.update(ctx, was) { // users have deleted it, or it has expired
			was = sent{namespace: e.Namespace, name: e.Name, count: 1, last: was.last, updated: was.last}
			s.create(ctx, e)
		}
	}
	s.seen.Add(sum, was)
}

func (s *series) create(ctx context.Context, e *eventsv1.Event) {
	s.try(ctx, e.Namespace+"/"+e.Name, func(ctx context.Context) error {
		_, err := s.to.Create(ctx, e)
		return err
	})
}

// update writes a series, and reports whether the event still exists.
func (s *series) update(ctx context.Context, e sent) bool {
	patch, err := json.Marshal(map[string]any{
		"series": eventsv1.EventSeries{Count: e.count, LastObservedTime: metav1.NewMicroTime(e.last)},
	})
	if err != nil {
		return true // never: these are numbers and times
	}
	exists := true
	s.try(ctx, e.namespace+"/"+e.name, func(ctx context.Context) error {
		_, err := s.to.Patch(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.name}}, patch)
		if apierrors.IsNotFound(err) {
			exists = false
			return nil
		}
		return err
	})
	return exists
}

// try sends until the API server answers, or once if the context has ended. What the API server refuses is not sent
// again.
func (s *series) try(ctx context.Context, name string, send func(context.Context) error) {
	var err error
	for range tries {
		request, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		err = send(request)
		if cancel(); err == nil || ctx.Err() != nil {
			return
		}
		if _, answered := err.(apierrors.APIStatus); answered && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) {
			break
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
	}
	// The namespace may be gone, or going.
	s.log.Warn("an event is lost", "event", name, "err", err)
}
