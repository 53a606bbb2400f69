package shim

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/tracing"
)

func newTracing(ctx context.Context, c config.Config, version string, log *slog.Logger) (*tracing.Tracing, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("set up tracing: %w", err)
	}
	o := c.Tracing.Options()
	o.Service, o.Version, o.Host = "nodevirt-shim", version, host
	return tracing.New(ctx, o, log)
}

// closeTracing exports the last spans. A collector that is away is no error of the shim's.
func closeTracing(ctx context.Context, t *tracing.Tracing, log *slog.Logger) {
	if err := t.Close(ctx); err != nil {
		log.Warn("closing tracing failed", "error", err)
	}
}
