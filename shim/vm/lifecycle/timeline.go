package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/tracing"
)

// timeline collects the phases of a start from any goroutine.
type timeline struct {
	mu     sync.Mutex
	phases []record.Phase
}

func (l *timeline) add(p record.Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, p)
}

// sorted returns the phases in the order in which they began.
func (l *timeline) sorted() []record.Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(l.phases), func(a, b record.Phase) int {
		return cmp.Or(a.Begun.Compare(b.Begun), a.Begun.Add(a.Took).Compare(b.Begun.Add(b.Took)))
	})
}

// beginPhase begins a phase, and its span if the context has one. ended ends both with the
// phase's error.
func beginPhase(ctx context.Context, name string) (_ context.Context, ended func(error) record.Phase) {
	begun := time.Now()
	ctx, end := tracing.Phase(ctx, "phase", name)
	return ctx, func(err error) record.Phase {
		end(err)
		return record.Phase{Name: name, Begun: begun, Took: time.Since(begun)}
	}
}

// tracedCall returns a call about a VM container as its span describes it. Its trace is that of
// the sandbox, unless the kubelet has begun another.
func tracedCall(name string, sandbox record.Sandbox, config *runtimeapi.ContainerConfig, id string) tracing.Call {
	pod := sandbox.Config.Value
	return tracing.Call{
		Name: name, Kind: trace.SpanKindServer, Parent: sandbox.Trace, Link: pod.GetAnnotations()[tracing.Annotation],
		Attributes: append(tracing.Pod(pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), pod.GetMetadata().GetUid()),
			tracing.Container(config.GetMetadata().GetName(), id)...),
	}
}

// endCreate ends the span of CreateContainer. That a container turns out to be an ordinary one is
// no failure: containerd creates it.
func endCreate(ctx context.Context, end func(error), id string, err error) {
	if id != "" {
		tracing.Annotate(ctx, tracing.ContainerID(id))
	}
	end(unlessOrdinary(err))
}

func unlessOrdinary(err error) error {
	if errors.Is(err, vmerrors.ErrNotVM) {
		return nil
	}
	return err
}
