package vmtest

import (
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Publications keeps CRI's container events.
type Publications struct {
	mu  sync.Mutex
	all []string
}

// Publish implements event's Broker.
func (p *Publications) Publish(_ record.Container, kind runtimeapi.ContainerEventType) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimSuffix(strings.TrimPrefix(kind.String(), "CONTAINER_"), "_EVENT")
	p.all = append(p.all, strings.ToLower(text))
}

// Take returns the kinds of the events since the last call, such as "created started".
func (p *Publications) Take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.Join(p.all, " ")
	p.all = nil
	return text
}
