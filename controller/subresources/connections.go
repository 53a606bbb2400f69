package subresources

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of connections that are measured.
const (
	kindConsole = "console"
	kindDisplay = "vnc"
	kindPort    = "portforward"
	kindUSB     = "usbredir"
)

// mostConnected bounds the VMs of which connections remembers the last one. Any user can connect to VMs of ever new names.
const mostConnected = 4096

// connections measures callers' connections to VMs, by KubeVirt's names.
type connections struct {
	now func() time.Time

	mu sync.Mutex // guards of
	of map[client.ObjectKey]*vmConnections

	last   *prometheus.Desc
	active map[string]*prometheus.Desc // by kind
}

// vmConnections are the connections to a VM.
type vmConnections struct {
	last time.Time
	open map[string]int // by kind
}

func newConnections(now func() time.Time) *connections {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kubevirt_"+name, help, []string{"namespace", "vmi"}, nil)
	}
	return &connections{
		now: now, of: map[client.ObjectKey]*vmConnections{},
		last: d("vmi_last_api_connection_timestamp_seconds", "When a caller last vmConnections to a VM, or left it, in seconds since the epoch."),
		active: map[string]*prometheus.Desc{
			kindConsole: d("console_active_connections", "Connections to a VM's serial console."),
			kindDisplay: d("vnc_active_connections", "Connections to a VM's display."),
			kindPort:    d("portforward_active_tunnels", "Connections to ports of a VM."),
			kindUSB:     d("usbredir_active_connections", "USB devices that callers lend a VM."),
		},
	}
}

// begin counts a connection to a VM until the returned function is called.
func (c *connections) begin(vm client.ObjectKey, kind string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[vm]
	if of == nil {
		if len(c.of) >= mostConnected {
			delete(c.of, c.oldest())
		}
		of = &vmConnections{open: map[string]int{}}
		c.of[vm] = of
	}
	of.last = c.now()
	of.open[kind]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		of.last = c.now()
		of.open[kind]--
	}
}

// oldest returns the VM whose last connection is the longest ago, those without one now first.
func (c *connections) oldest() client.ObjectKey {
	return slices.MinFunc(slices.Collect(maps.Keys(c.of)), func(a, b client.ObjectKey) int {
		return cmp.Or(cmp.Compare(c.of[a].all(), c.of[b].all()), c.of[a].last.Compare(c.of[b].last))
	})
}

// all counts the open connections.
func (o *vmConnections) all() int {
	sum := 0
	for _, count := range o.open {
		sum += count
	}
	return sum
}

// register has a registry, if there is one, report the connections.
func (c *connections) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	err := to.Register(c)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return nil // another server of this process reports
	}
	if err != nil {
		return fmt.Errorf("register the metrics of connections: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *connections) Describe(to chan<- *prometheus.Desc) {
	to <- c.last
	for _, d := range c.active {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *connections) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for vm, of := range c.of {
		to <- prometheus.MustNewConstMetric(c.last, prometheus.GaugeValue, float64(of.last.Unix()), vm.Namespace, vm.Name)
		for kind, count := range of.open {
			to <- prometheus.MustNewConstMetric(c.active[kind], prometheus.GaugeValue, float64(count), vm.Namespace, vm.Name)
		}
	}
}
