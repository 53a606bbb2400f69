package tracing

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// DialOptions make calls on behalf of a span its children, and pass the trace on with
// them. There are none if tracing is off.
func (t *Tracing) DialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(ownCalls{otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	)})}
}

// ownCalls handles calls on behalf of a span of this process. Calls that are forwarded as
// they came have none: their metadata keeps the caller's trace context.
type ownCalls struct{ stats.Handler }

// TagRPC implements stats.Handler.
func (h ownCalls) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if !own(ctx) {
		return ctx
	}
	return h.Handler.TagRPC(ctx, info)
}

// HandleRPC implements stats.Handler.
func (h ownCalls) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if own(ctx) {
		h.Handler.HandleRPC(ctx, s)
	}
}

func own(ctx context.Context) bool {
	c := trace.SpanContextFromContext(ctx)
	return c.IsValid() && !c.IsRemote()
}
