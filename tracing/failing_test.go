package tracing_test

import (
	"context"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// failing is an exporter that fails with err.
type failing struct{ err error }

func (f *failing) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return f.err }
func (*failing) Shutdown(context.Context) error                          { return nil }
