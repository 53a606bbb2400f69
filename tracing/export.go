package tracing

import (
	"context"
	"log/slog"
	"sync"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// reported is an exporter that logs when exports begin to fail and when they succeed
// again, and removes errors' texts from spans: these can quote a VM's spec.
type reported struct {
	sdk.SpanExporter
	endpoint string
	log      *slog.Logger

	mu   sync.Mutex
	lost int // spans since exports fail
}

// ExportSpans implements sdk.SpanExporter.
func (e *reported) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	plain := make([]sdk.ReadOnlySpan, len(spans))
	for i, s := range spans {
		plain[i] = wordless{s}
	}
	err := e.SpanExporter.ExportSpans(ctx, plain)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil && e.lost == 0:
		e.log.Warn("exporting traces failed; spans are lost until the collector answers", "endpoint", e.endpoint, "error", err)
		fallthrough
	case err != nil:
		e.lost += len(spans)
	case e.lost > 0:
		e.log.Info("exporting traces again", "endpoint", e.endpoint, "lost", e.lost)
		e.lost = 0
	}
	return nil // it is logged
}

// wordless is a span without the texts of errors.
type wordless struct{ sdk.ReadOnlySpan }

// Status implements sdk.ReadOnlySpan.
func (s wordless) Status() sdk.Status { return sdk.Status{Code: s.ReadOnlySpan.Status().Code} }

// Events implements sdk.ReadOnlySpan. The project records none; a library's have an error's text.
func (wordless) Events() []sdk.Event { return nil }
