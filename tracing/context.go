package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Annotation is where the trace context of a VMI's creation travels to the node, as a W3C
// traceparent. Its key is not below nodevirt.io/, so that a node ignores what it can't
// parse: no trace may fail a start.
const Annotation = "trace.nodevirt.io/traceparent"

const header = "traceparent"

// length is that of a traceparent of version 00, the only one that is parsed.
const length = 55

// Parse reads a traceparent, which may be an attacker's.
func Parse(text string) (trace.SpanContext, bool) {
	if len(text) != length || text[:3] != "00-" {
		return trace.SpanContext{}, false
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: text}) // it carries the result alone
	found := trace.SpanContextFromContext(ctx)
	return found, found.IsValid()
}

// Format returns the traceparent of the context's span; empty if there is none.
func Format(ctx context.Context) string {
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, to)
	return to[header]
}

// TraceID returns the ID of a traceparent's trace; empty if it has none that is exported.
func TraceID(traceparent string) string {
	if c, ok := Parse(traceparent); ok && c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}

// FromCall returns the context with the trace context in an incoming gRPC call's metadata.
func (t *Tracing) FromCall(ctx context.Context) context.Context {
	md, ok := metadata.FromIncomingContext(ctx)
	if t == nil || !ok || len(md.Get(header)) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, calls(md))
}

// FromRequest returns the context with the trace context in an HTTP request's header.
func (t *Tracing) FromRequest(r *http.Request) context.Context {
	if t == nil {
		return r.Context()
	}
	return propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// calls reads gRPC metadata.
type calls metadata.MD

func (c calls) Get(key string) string {
	if all := metadata.MD(c).Get(key); len(all) > 0 {
		return all[0]
	}
	return ""
}

func (c calls) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c calls) Keys() []string {
	all := make([]string, 0, len(c))
	for key := range c {
		all = append(all, key)
	}
	return all
}
