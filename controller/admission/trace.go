package admission

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/tracing"
)

// traced is a review with a span, in the API server's trace or a new one.
func (w Webhooks) traced(name string, decide admission.HandlerFunc) admission.HandlerFunc {
	if !w.Tracing.On() {
		return decide
	}
	return func(ctx context.Context, request admission.Request) admission.Response {
		ctx, end := w.Tracing.Start(ctx, tracing.Call{
			Name: "admission " + name, Kind: trace.SpanKindServer,
			Attributes: tracing.Object(request.Kind.Kind, request.Namespace, request.Name),
		})
		defer end(nil)
		answer := decide(ctx, request)
		tracing.Annotate(ctx, tracing.Allowed(answer.Allowed))
		return answer
	}
}

// setTrace annotates a new instance with the trace of its creation, for the reconciler and the
// node. It replaces a trace context that the instance's author wrote.
func (r *Review) setTrace(ctx context.Context) {
	if text := tracing.Format(ctx); text != "" && r.rules.Instance && r.Old == nil {
		Child(Child(r.Object, "metadata"), "annotations")[tracing.Annotation] = text
	}
}
