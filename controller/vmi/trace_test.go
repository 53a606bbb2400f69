package vmi

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/tracing"
)

// TestTrace: a pod gets the trace context of its instance's admission, to which the reconcile is
// linked; or else the reconcile's own.
func TestTrace(t *testing.T) {
	const admitted = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
	for _, annotation := range []string{admitted, ""} {
		g, to := newRig(t), tracetest.NewInMemoryExporter()
		g.wire(func(o *Options) { o.Tracing = tracing.ForTest(to, 1) })
		g.add(func(vmi *kubevirt.VirtualMachineInstance) {
			if annotation != "" {
				vmi.Annotations = map[string]string{tracing.Annotation: annotation}
			}
		})
		g.reconcile()
		spans := to.GetSpans()
		if len(spans) != 1 || spans[0].Name != "reconcile VirtualMachineInstance" || spans[0].Parent.IsValid() {
			t.Fatalf("spans %+v", spans)
		}
		own := spans[0].SpanContext.TraceID().String()
		got := g.onePod().Annotations[tracing.Annotation]
		if annotation != "" && (got != annotation || len(spans[0].Links) != 1 || own == tracing.TraceID(annotation)) {
			t.Errorf("the pod has %q; span %+v", got, spans[0])
		}
		if annotation == "" && (tracing.TraceID(got) != own || len(spans[0].Links) > 0) {
			t.Errorf("the pod has %q, the trace is %s", got, own)
		}
		g.reconcile()
		if n := len(to.GetSpans()); n != 1 {
			t.Errorf("%d spans after a reconcile with a pod", n)
		}
	}
	g := newRig(t)
	g.add()
	g.reconcile()
	if got, ok := g.onePod().Annotations[tracing.Annotation]; ok {
		t.Errorf("without tracing the pod has %q", got)
	}
}
