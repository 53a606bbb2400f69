package events

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
)

const (
	// senders send at once. All events of one object have the same, so that they arrive in their order.
	senders = 16
	// waiting is how many events may wait for one sender; further ones are dropped.
	waiting = 256
	// farewell bounds how long events are sent once the sender should end.
	farewell = 2 * time.Second
	// maxNote is the API server's bound of an event's text.
	maxNote = 1024
)

// sink is the API server; client-go's EventSinkImpl.
type sink interface {
	Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error)
	Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error)
}

// Sender sends events while it runs.
type Sender struct {
	scheme *runtime.Scheme
	log    *slog.Logger
	seed   maphash.Seed
	queues [senders]chan *eventsv1.Event
	to     sink
	now    func() time.Time
}

// NewSender returns a sender of events about objects of a scheme.
func NewSender(to sink, scheme *runtime.Scheme, log *slog.Logger) *Sender {
	s := &Sender{scheme: scheme, log: log, seed: maphash.MakeSeed(), to: to, now: time.Now}
	for i := range s.queues {
		s.queues[i] = make(chan *eventsv1.Event, waiting)
	}
	return s
}

// Start sends events until the context ends, and then those that wait, for a short time.
func (s *Sender) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, queue := range s.queues {
		all.Go(func() {
			q := &series{to: s.to, log: s.log, seed: s.seed, now: s.now, seen: newMemory()}
			for ctx.Err() == nil {
				select {
				case e := <-queue:
					q.send(ctx, e)
				case <-ctx.Done():
				}
			}
			for until := s.now().Add(farewell); s.now().Before(until); {
				select {
				case e := <-queue:
					q.send(ctx, e)
				default:
					return
				}
			}
		})
	}
	all.Wait()
	return nil
}

// Recorder returns a recorder of a controller's events.
func (s *Sender) Recorder(controller string) events.EventRecorder {
	host, _ := os.Hostname()
	return &recorder{Sender: s, controller: controller, instance: controller + "-" + host}
}

// recorder records the events of one controller.
type recorder struct {
	*Sender
	controller, instance string
}

// Eventf queues an event about an object. Related is nil for none.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	of, err := reference.GetReference(r.scheme, regarding)
	if err != nil {
		r.log.Error("an event is lost", "reason", reason, "err", err)
		return
	}
	var other *corev1.ObjectReference
	if related != nil {
		if other, err = reference.GetReference(r.scheme, related); err != nil {
			r.log.Debug("an event does not name its related object", "reason", reason, "err", err)
		}
	}
	now := r.now()
	namespace := of.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: util.GenerateEventName(of.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), ReportingController: r.controller, ReportingInstance: r.instance,
		Type: kind, Reason: reason, Action: action, Note: clip(fmt.Sprintf(note, args...)), Regarding: *of, Related: other,
	}
	select {
	case r.queues[maphash.String(r.seed, string(of.UID))%senders] <- e:
	default:
		r.log.Warn("an event is lost: too many wait for the API server", "object", of.Namespace+"/"+of.Name, "reason", reason)
	}
}

// clip bounds an event's text.
func clip(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len("...")], "") + "..."
}
