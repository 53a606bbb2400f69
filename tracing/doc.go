// Package tracing exports OpenTelemetry traces of VM starts, over OTLP and gRPC.
//
// It owns the connection to the collector, the queue of spans, the sampling, and the
// forms in which a trace context travels: gRPC metadata, HTTP headers and an annotation.
// It leaves to other packages which work is a span.
//
// Without a collector's endpoint nothing is traced: [New] returns nil, whose methods do
// nothing. A collector that is away never slows a start: a full queue drops spans.
package tracing
