package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nodevirt/nodevirt/tracing"
)

// newTracing returns tracing with the settings of the flags; nil if it is off.
func newTracing(ctx context.Context, o Options, log *slog.Logger) (*tracing.Tracing, error) {
	settings := o.Tracing
	var errs []error
	for _, p := range settings.Problems() {
		errs = append(errs, fmt.Errorf("-tracing-%s: %w", p.Field, p.Err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	settings.Service, settings.Version, settings.Host = "nodevirt-controller", o.Version, o.Pod
	return tracing.New(ctx, settings, log)
}

// closeTracing exports the last spans. A collector that is away is no error of the controller's.
func closeTracing(ctx context.Context, t *tracing.Tracing, log *slog.Logger) {
	if err := t.Close(ctx); err != nil {
		log.Warn("closing tracing failed", "error", err)
	}
}
