package tracing

import (
	"context"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"
)

// Call is a call that begins or continues a trace.
type Call struct {
	// Name is the name of its span, and Kind the span's role; 0 for work inside this process.
	Name string
	Kind trace.SpanKind
	// Parent is a traceparent of ours, such as a record's. The span continues that trace if
	// the context has no trace of the caller, and is linked to it otherwise.
	Parent string
	// Link is a traceparent that an attacker may have written, such as an annotation's. The span
	// is linked to it and never continues it: an author could otherwise put spans into
	// another's trace, or choose what is exported.
	Link       string
	Attributes []attribute.KeyValue
}

// Start begins the span of a call. The caller ends it with the call's error.
func (t *Tracing) Start(ctx context.Context, c Call) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(c.Kind), trace.WithAttributes(c.Attributes...)}
	if link, ok := Parse(c.Link); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	caller := trace.SpanContextFromContext(ctx)
	switch earlier, ok := Parse(c.Parent); {
	case !ok:
	case !caller.IsValid():
		ctx = trace.ContextWithRemoteSpanContext(ctx, earlier)
	case caller.TraceID() != earlier.TraceID():
		options = append(options, trace.WithLinks(trace.Link{SpanContext: earlier}))
	}
	ctx, span := t.tracer.Start(ctx, c.Name, options...)
	return ctx, func(err error) { end(span, err) }
}

// Past exports a span of work that has ended, in the trace of a traceparent of ours.
func (t *Tracing) Past(ctx context.Context, name, parent string, from, to time.Time, attributes ...attribute.KeyValue) {
	of, ok := Parse(parent) //nolint:contextcheck // it only reads a text
	if t == nil || !ok {
		return
	}
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, of), name, trace.WithTimestamp(from), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(to))
}

// Phase begins a child of the context's span, whose name is kind and name. Without a
// sampled span it does nothing. The caller ends the child with the error of its work.
func Phase(ctx context.Context, kind, name string) (context.Context, func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, func(error) {}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, kind+" "+name)
	return ctx, func(err error) { end(span, err) }
}

// With returns a context that has the span of another one, for work that outlives the call.
func With(ctx, from context.Context) context.Context {
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(from))
}

// Annotate adds attributes to the context's span.
func Annotate(ctx context.Context, attributes ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(attributes...)
}

// end ends a span. Of an error it has only the gRPC code of its kind.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(status.Code(errgrpc.ToGRPC(err)).String()))
	}
	span.End()
}

// Pod returns the attributes of a pod.
func Pod(namespace, name, uid string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.K8SNamespaceName(namespace), semconv.K8SPodName(name), semconv.K8SPodUID(uid)}
}

// Container returns the attributes of a container; an empty ID is not known yet.
func Container(name, id string) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.K8SContainerName(name)}
	if id != "" {
		all = append(all, ContainerID(id))
	}
	return all
}

// Object returns the attributes of an object of the API; an empty name is not known yet.
func Object(kind, namespace, name string) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.K8SNamespaceName(namespace), attribute.String("nodevirt.kind", kind)}
	if name != "" {
		all = append(all, attribute.String("nodevirt.name", name))
	}
	return all
}

// Allowed returns the attribute of a review's result.
func Allowed(yes bool) attribute.KeyValue { return attribute.Bool("nodevirt.allowed", yes) }

// ContainerID returns the attribute of a container's ID.
func ContainerID(id string) attribute.KeyValue { return semconv.ContainerID(id) }
