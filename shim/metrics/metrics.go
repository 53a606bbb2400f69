// Package metrics counts what the shim does and serves it, with what the VMs
// use, to Prometheus.
//
// It owns the metrics' names, labels and units, and the HTTP endpoint. Where a
// VM's figures come from is the business of whom it asks. Names follow
// Prometheus' conventions; where KubeVirt has a metric of the same meaning it is
// KubeVirt's name and labels, so that its dashboards work.
package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace begins the names of metrics that are not KubeVirt's as well.
const namespace = "nodevirt"

// Metrics are the shim's counters and what is collected at each scrape. Its
// methods may be called from any goroutine.
type Metrics struct {
	registry *prometheus.Registry
	calls    calls
	life     life
}

// New makes the metrics, all at zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), calls: newCalls(), life: newLife()}
	m.registry.MustRegister(
		collectors.NewBuildInfoCollector(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.calls.register(m.registry)
	m.life.register(m.registry)
	return m
}

// Collect adds the node and its VMs, as the source knows them, to each scrape
// from now on. node is the node's name.
func (m *Metrics) Collect(source Source, node string) {
	m.registry.MustRegister(newNode(source, node))
}

const (
	// scrapeTime bounds a scrape; Prometheus' own default is 10 s.
	scrapeTime = 8 * time.Second
	// scrapesAtOnce bounds those under way.
	scrapesAtOnce = 4
)

// Handler serves the metrics, in the formats that Prometheus asks for. A
// collector that fails takes nothing from the others.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeTime,
		EnableOpenMetrics:   true,
	}))
	return mux
}
