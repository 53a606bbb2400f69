// Program otelcol is the OpenTelemetry Collector with the receiver of OTLP, and with an exporter that appends
// the spans to a file, a batch a line, as OTLP in JSON.
package main

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "OpenTelemetry Collector of the tests", Version: "0.120.0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}, DefaultScheme: "file",
		}},
	})
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	file := exporter.NewFactory(component.MustNewType("file"), func() component.Config { return &config{} },
		exporter.WithTraces(newFile, component.StabilityLevelDevelopment))
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](file)
	return f, err
}

// config is the exporter's.
type config struct {
	// Path is the file's, which is made if needed.
	Path string `mapstructure:"path"`
}

func newFile(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	f, err := os.OpenFile(cfg.(*config).Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	push := func(_ context.Context, spans ptrace.Traces) error {
		text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(spans)
		if err != nil {
			return err
		}
		_, err = f.Write(append(text, '\n'))
		return err
	}
	return exporterhelper.NewTraces(ctx, set, cfg, push,
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithShutdown(func(context.Context) error { return f.Close() }))
}
