package tracing

import (
	"log/slog"

	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// ForTestLog is ForTest with a log.
func ForTestLog(to sdk.SpanExporter, log *slog.Logger) *Tracing {
	return newTracing(sdk.NewSimpleSpanProcessor(&reported{SpanExporter: to, log: log}), 1, resource.Empty())
}
