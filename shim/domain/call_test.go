package domain

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/nodevirt/nodevirt/tracing"
)

// TestCallsAreTraced: a call has a span if it is part of a traced start, and only then.
func TestCallsAreTraced(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	l := &Lifecycle{conn: &Connection{}} // libvirtd is away
	if err := l.Resume(t.Context(), "uuid"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if all := to.GetSpans(); len(all) > 0 {
		t.Errorf("spans %v", all.Snapshots())
	}
	ctx, end := tracing.ForTest(to, 1).Start(t.Context(), tracing.Call{Name: "StartContainer"})
	if err := l.Resume(ctx, "uuid"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	end(nil)
	spans := to.GetSpans()
	if len(spans) != 2 || spans[0].Name != "libvirt resume" || spans[0].Status.Code != codes.Error ||
		spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Errorf("spans %+v", spans)
	}
}
