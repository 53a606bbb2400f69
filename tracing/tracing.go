package tracing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"
)

// scope names this instrumentation in spans.
const scope = "github.com/nodevirt/nodevirt/tracing"

// Bounds of what waits for the collector.
const (
	// maxQueue bounds the spans that wait. A start has about sixty.
	maxQueue = 4096
	// exportTime bounds one export, closeTime the last one.
	exportTime = 10 * time.Second
	closeTime  = 2 * time.Second
)

// Tracing makes spans and exports them. Nil is tracing that is off.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter sdk.SpanExporter
}

// New returns Tracing, or nil if there is no endpoint. It does not wait for the
// collector. The caller closes the result.
func New(ctx context.Context, o Options, log *slog.Logger) (*Tracing, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	security := otlptracegrpc.WithInsecure()
	if !o.Insecure {
		config, err := o.tls()
		if err != nil {
			return nil, fmt.Errorf("set up tracing: %w", err)
		}
		security = otlptracegrpc.WithTLSCredentials(credentials.NewTLS(config))
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(o.Endpoint), security, otlptracegrpc.WithTimeout(exportTime))
	if err != nil {
		return nil, fmt.Errorf("set up tracing: connect to %s: %w", o.Endpoint, err)
	}
	attributes := resource.NewWithAttributes(semconv.SchemaURL,
		semconv.ServiceName(o.Service), semconv.ServiceVersion(o.Version), semconv.HostName(o.Host))
	queue := sdk.NewBatchSpanProcessor(&reported{SpanExporter: exporter, endpoint: o.Endpoint, log: log},
		sdk.WithMaxQueueSize(maxQueue), sdk.WithExportTimeout(exportTime))
	t := newTracing(queue, o.Ratio, attributes)
	t.exporter = exporter
	return t, nil
}

// ForTest returns Tracing that exports each span at once.
func ForTest(to sdk.SpanExporter, ratio float64) *Tracing {
	return newTracing(sdk.NewSimpleSpanProcessor(&reported{SpanExporter: to, log: slog.New(slog.DiscardHandler)}), ratio, resource.Empty())
}

func newTracing(processor sdk.SpanProcessor, ratio float64, of *resource.Resource) *Tracing {
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(processor), sdk.WithResource(of),
		sdk.WithSampler(sdk.ParentBased(linked{sdk.TraceIDRatioBased(ratio)})))
	return &Tracing{provider: p, tracer: p.Tracer(scope)}
}

// Close exports what waits, for two seconds at most.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if err == nil {
		return nil
	}
	if t.exporter != nil {
		err = errors.Join(err, t.exporter.Shutdown(ctx)) // cut off the export that hangs
	}
	return fmt.Errorf("export the last spans: %w", err)
}

// On reports whether anything is traced.
func (t *Tracing) On() bool { return t != nil }

func (o Options) tls() (*tls.Config, error) {
	if o.CA == "" {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	text, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("read the collector's CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the collector's CA: %s has no certificate in PEM", o.CA)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}

// linked samples a trace that begins with a link as the linked trace is sampled by the
// same ratio, so that both are exported or neither. It does not trust the link's own
// decision: an annotation's author must not choose what a node exports.
type linked struct{ sdk.Sampler }

// ShouldSample implements sdk.Sampler.
func (s linked) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if len(p.Links) > 0 {
		p.TraceID = p.Links[0].SpanContext.TraceID()
	}
	return s.Sampler.ShouldSample(p)
}
