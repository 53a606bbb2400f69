package cluster

import (
	"context"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/test/node"
)

// tracesAddress is where the collector receives traces, as OTLP over gRPC without TLS.
const tracesAddress = controlAddress + ":4317"

// tracingConfig has the API server trace each request.
const tracingConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: ` + tracesAddress + `
samplingRatePerMillion: 1000000
`

// collectorConfig is the OpenTelemetry Collector's. The first is the receiver's address, the second the file.
const collectorConfig = `receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %s
exporters:
  file:
    path: %s
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
`

// Traces is the file to which the collector appends the spans of all parts: lines of OTLP in JSON.
func (c *Cluster) Traces() string { return c.o.traces() }

func (o Options) traces() string { return o.path("traces.json") }

// collector is the OpenTelemetry Collector, as test/tools/build otelcol makes it.
func (o Options) collector() node.Component {
	file := o.path("etc", "otelcol.yaml")
	return node.Component{
		Name:  "otelcol",
		Args:  []string{o.bin("otelcol"), "--config=file:" + file},
		Files: map[string]string{file: fmt.Sprintf(collectorConfig, tracesAddress, o.traces())},
		Ready: func(context.Context, *node.Node) error { // it makes the file before it receives
			_, err := os.Stat(o.traces())
			return err
		},
	}
}

// traceKubelet adds the collector to a kubelet's configuration, and the functions below to that of others.
func (o Options) traceKubelet(c object) {
	if o.Traces {
		c["tracing"] = object{"endpoint": tracesAddress, "samplingRatePerMillion": 1000000}
	}
}

func (o Options) traceShim(c map[string]any) {
	if o.Traces {
		c["tracing"] = object{"endpoint": tracesAddress, "insecure": true}
	}
}

func (o Options) traceController() []string {
	if !o.Traces {
		return nil
	}
	return []string{"-tracing-endpoint=" + tracesAddress, "-tracing-insecure"}
}

func (o Options) traceContainerd() string {
	if !o.Traces {
		return ""
	}
	return tracesAddress
}
