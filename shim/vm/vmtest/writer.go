package vmtest

import (
	"sync"

	"github.com/nodevirt/nodevirt/shim/podstatus"
)

// Writer is a fake of [podstatus.Writer]: it keeps the facts of each pod.
type Writer struct {
	mu    sync.Mutex
	facts map[podstatus.Pod]podstatus.Facts
	how   map[podstatus.Pod]string
}

// NewWriter returns a Writer without facts.
func NewWriter() *Writer {
	return &Writer{facts: map[podstatus.Pod]podstatus.Facts{}, how: map[podstatus.Pod]string{}}
}

func (w *Writer) set(how string, pod podstatus.Pod, f podstatus.Facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[pod], w.how[pod] = f, how
}

// Set implements podstatus'.
func (w *Writer) Set(pod podstatus.Pod, f podstatus.Facts) { w.set("", pod, f) }

// SetRefused implements podstatus'.
func (w *Writer) SetRefused(pod podstatus.Pod, f podstatus.Facts) { w.set("refused", pod, f) }

// SetAgain implements podstatus'.
func (w *Writer) SetAgain(pod podstatus.Pod, f podstatus.Facts) { w.set("again", pod, f) }

// Forget implements podstatus'.
func (w *Writer) Forget(pod podstatus.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.facts, pod)
}

// Of returns the facts of a pod by its name, and how they were set: "", "refused"
// or "again". ok is false for a pod without facts.
func (w *Writer) Of(name string) (f podstatus.Facts, how string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for pod, f := range w.facts {
		if pod.Name == name {
			return f, w.how[pod], true
		}
	}
	return f, "", false
}
