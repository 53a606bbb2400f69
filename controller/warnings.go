package controller

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
)

// warnings logs what the API server warns of, once: it repeats a deprecation with each list and watch of a kind.
type warnings struct {
	log logr.Logger

	mu   sync.Mutex
	seen map[string]bool
}

// maxWarnings bounds the warnings that are remembered. Further ones are not logged: authors of pods could make any number.
const maxWarnings = 100

func newWarnings(log logr.Logger) *warnings { return &warnings{log: log, seen: map[string]bool{}} }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, message string) {
	const persistent = 299
	if code != persistent || message == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[message] || len(w.seen) >= maxWarnings {
		return
	}
	w.seen[message] = true
	w.log.Info("the API server warns", "message", message)
}
