package podstatus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

const readyType = condition.VMReady

// api is the API server.
type api interface {
	// conditions returns the conditions in a pod's status, and the pod's version. It fails with kubelet.ErrGone if
	// the pod of that name has another UID.
	conditions(context.Context, Pod) (_ []Condition, version string, _ error)
	// patch writes conditions, leaves other conditions unchanged, and returns the pod's version.
	patch(context.Context, Pod, []Condition) (version string, _ error)
	// record records a warning as an event of a pod.
	record(context.Context, Pod, event) error
}

// Writer writes facts to the pods' statuses. Its methods may be called
// concurrently; only Run waits for the API server.
type Writer struct {
	api api // nil: nothing is written
	log *slog.Logger

	mu      sync.Mutex
	entries map[string]*entry // by the pod's uid
	wake    chan struct{}
	// away counts the consecutive failures to reach the API server. No request is
	// made until awayTil.
	away    int
	awayTil time.Time
}

// New returns a Writer with a kubeconfig, which need not exist yet. With an empty
// path it writes nothing.
func New(kubeconfig string, log *slog.Logger) *Writer {
	if kubeconfig == "" {
		return newWriter(nil, log)
	}
	return newWriter(&client{api: kubelet.New(kubeconfig)}, log)
}

func newWriter(a api, log *slog.Logger) *Writer {
	return &Writer{api: a, log: log, entries: map[string]*entry{}, wake: make(chan struct{}, 1)}
}

// Set replaces the facts of a pod's VM. The Writer keeps them in memory until Forget.
func (w *Writer) Set(pod Pod, f Facts) {
	w.set(pod, f, map[string]Condition{}, 0)
}

// SetRefused is Set for a pod without a sandbox, for which Forget is never
// called. The Writer drops the facts after refusedTime without an update.
func (w *Writer) SetRefused(pod Pod, f Facts) {
	w.set(pod, f, map[string]Condition{}, refusedTime)
}

// refusedTime is longer than the kubelet waits between two attempts.
const refusedTime = 10 * time.Minute

// SetAgain is Set for a pod whose status an earlier shim may have written. The
// Writer reads the status first, and writes only what differs.
func (w *Writer) SetAgain(pod Pod, f Facts) {
	w.set(pod, f, nil, 0)
}

func (w *Writer) set(pod Pod, f Facts, written map[string]Condition, keep time.Duration) {
	if w.api == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[pod.UID]
	switch {
	case e == nil:
		e = &entry{pod: pod, written: written, space: leastSpace}
		w.entries[pod.UID] = e
	case pod.Attempt < e.pod.Attempt:
		return
	}
	e.pod = pod
	now := time.Now()
	e.expires = time.Time{}
	if keep > 0 {
		e.expires = now.Add(keep)
	}
	if f.Event {
		e.note(event{f.Reason, clip(f.Message, maxEvent)})
	}
	e.set(f.conditions(now), now)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Forget drops the facts of a pod whose sandbox is removed, written or not. It
// keeps those of a newer sandbox of the same pod.
func (w *Writer) Forget(pod Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[pod.UID]; e != nil && e.pod.Attempt <= pod.Attempt {
		delete(w.entries, pod.UID)
	}
}

// Seen compares the versions of the node's pods, which are by their UIDs, with those that the Writer knows, and reads the pods that
// differ again. Another may have changed conditions, and the API server may have lost them, as after a restore of etcd:
// what the Writer remembers to have written proves nothing. A pod that was gone may be there again.
func (w *Writer) Seen(pods map[string]Listed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, due := time.Now(), false
	for uid, e := range w.entries {
		if pod, there := pods[uid]; there && e.seen(pod.Version, now) {
			due = true
		}
	}
	if !due {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes facts until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	if w.api == nil {
		return
	}
	for ctx.Err() == nil {
		e, wait := w.next()
		if e != nil && wait <= 0 {
			w.write(ctx, e)
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// idle is how long Run waits if nothing is due; Set wakes it.
const idle = time.Hour

// next returns the entry that is due first, and the time until then.
func (w *Writer) next() (*entry, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *entry
	for uid, e := range w.entries {
		if !e.expires.IsZero() && time.Now().After(e.expires) {
			delete(w.entries, uid)
			continue
		}
		if !e.due.IsZero() && (first == nil || e.due.Before(first.due)) {
			first = e
		}
	}
	if first == nil {
		return nil, idle
	}
	return first, time.Until(later(first.due, w.awayTil))
}

// write writes the changed conditions of a pod.
func (w *Writer) write(ctx context.Context, e *entry) {
	version, err := w.learn(ctx, e)
	var changed []Condition
	if err == nil {
		w.mu.Lock()
		changed = e.changes()
		pod := e.pod
		w.mu.Unlock()
		if len(changed) > 0 {
			version, err = w.api.patch(ctx, pod, changed)
		}
	}
	if ctx.Err() != nil {
		return
	}
	one, pod := w.wrote(e, version, changed, err)
	if one == (event{}) {
		return
	}
	if err := w.api.record(ctx, pod, one); err != nil && ctx.Err() == nil { // the condition says it, too
		w.log.Warn("cannot record an event", "namespace", pod.Namespace, "pod", pod.Name, "reason", one.reason, "error", err)
	}
}

// wrote notes the result of a write, and returns the event to record after it, if any, and its pod.
func (w *Writer) wrote(e *entry, version string, changed []Condition, err error) (event, Pod) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge(e, err, now)
	if err != nil {
		e.failed(err, now)
		return event{}, e.pod
	}
	e.version = version
	e.wrote(changed, now)
	one := e.event
	e.event = event{}
	return one, e.pod
}

// learn reads the conditions in a pod's status, unless they are known, and returns the pod's version.
func (w *Writer) learn(ctx context.Context, e *entry) (string, error) {
	w.mu.Lock()
	known, pod, version := e.written != nil, e.pod, e.version
	w.mu.Unlock()
	if known {
		return version, nil
	}
	there, version, err := w.api.conditions(ctx, pod)
	if err != nil {
		return "", err
	}
	written := map[string]Condition{}
	for _, c := range there {
		written[c.Type] = c
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.written = written
	return version, nil
}

// judge logs the first failure and the recovery, and delays requests while the API
// server cannot be reached. The caller holds w.mu.
func (w *Writer) judge(e *entry, err error, now time.Time) {
	log := w.log.With("namespace", e.pod.Namespace, "pod", e.pod.Name)
	switch {
	case errors.Is(err, kubelet.ErrAway):
		if w.away == 0 {
			log.Warn("cannot write pods' statuses, will retry", "error", err)
		}
		w.awayTil = now.Add(min(retry(w.away), mostAway))
		w.away++
		return
	case err == nil && w.away > 0:
		w.log.Info("writing pods' statuses succeeds again")
	case err == nil || errors.Is(err, kubelet.ErrGone) || errors.Is(err, kubelet.ErrConflict):
	case e.failures == 0:
		log.Warn("cannot write a pod's status", "error", err)
	}
	w.away, w.awayTil = 0, time.Time{}
}
