// Package metrics counts the shim's operations, and serves them with the VMs'
// resource usage to Prometheus.
//
// It owns the names, labels and units of the metrics, and the HTTP endpoint. It
// leaves the VMs' values to its [Source]. Names follow Prometheus' conventions. A
// metric that KubeVirt has too has KubeVirt's name and labels, so that its dashboards work.
package metrics

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace is the prefix of metrics that KubeVirt does not have.
const namespace = "nodevirt"

// Metrics holds the shim's counters and the collectors of each scrape. Its methods
// may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	calls    calls
	life     life
	machines *machines
	node     nodeName
}

// New returns Metrics with all counters at zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), calls: newCalls(), life: newLife()}
	m.machines = newMachines(&m.node)
	m.registry.MustRegister(
		collectors.NewBuildInfoCollector(),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.calls.register(m.registry)
	m.life.register(m.registry)
	return m
}

// Collect adds the node and its VMs, as reported by source, to each later scrape.
// node is the node's name, until SetNode gives another.
func (m *Metrics) Collect(source Source, node string) {
	m.SetNode(node)
	m.registry.MustRegister(newNode(source, &m.node), m.machines)
}

// SetNode sets the node's name, which the label "node" has. The API server's name of it need not be the host's.
func (m *Metrics) SetNode(name string) { m.node.set(name) }

// nodeName is the node's name, which may be known late.
type nodeName struct{ name atomic.Pointer[string] }

func (n *nodeName) set(name string) { n.name.Store(&name) }

func (n *nodeName) get() string {
	if name := n.name.Load(); name != nil {
		return *name
	}
	return ""
}

const (
	// scrapeTime bounds a scrape; Prometheus' own default is 10 s.
	scrapeTime = 8 * time.Second
	// scrapesAtOnce bounds concurrent scrapes.
	scrapesAtOnce = 4
)

// Handler returns the handler that serves the metrics, in the formats that
// Prometheus requests. A collector that fails does not affect the others.
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
