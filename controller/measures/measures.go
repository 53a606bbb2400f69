// Package measures reports VMs, their instances and migrations to Prometheus, by the names and labels of KubeVirt.
//
// It owns what the controller's cache says of them. Nodes report what runs on them; see package shim/metrics.
package measures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
)

// collectTime bounds the read of one scrape.
const collectTime = 5 * time.Second

// Measures is a collector that reports while its controller leads.
type Measures struct {
	registry prometheus.Registerer
	client   client.Reader
	config   config.Source
	parts    []part
	phases   phases
}

// part reports something of the objects.
type part interface {
	Describe(to chan<- *prometheus.Desc)
	collect(all *objects, send sender)
}

// sender sends a metric with the values of its labels.
type sender func(d *prometheus.Desc, value float64, labels ...string)

// New returns the measures of what a client reads from its cache, and of what [Measures.Handler] hears.
func New(c client.Reader, configuration config.Source, registry prometheus.Registerer, now func() time.Time) *Measures {
	return &Measures{registry, c, configuration, []part{
		newMigrations(), newInstances(), newMachines(), newDisks(), newSnapshots(), newLabels(),
	}, newPhases(now)}
}

// Heard are the kinds of objects whose changes [Measures.Handler] is for.
func Heard() []client.Object {
	return []client.Object{
		new(kubevirt.VirtualMachine), new(kubevirt.VirtualMachineInstance), new(kubevirt.VirtualMachineInstanceMigration),
	}
}

// Handler hears how objects of the kinds of [Heard] change.
func (m *Measures) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(added any, first bool) {
			if vm, ok := added.(*kubevirt.VirtualMachine); ok && !first {
				m.phases.created.WithLabelValues(vm.Namespace).Inc()
			}
		},
		DeleteFunc: func(gone any) {
			if vmi, ok := gone.(*kubevirt.VirtualMachineInstance); ok {
				m.phases.gone(vmi)
			}
		},
		UpdateFunc: func(before, after any) {
			switch after := after.(type) {
			case *kubevirt.VirtualMachineInstance:
				if before, ok := before.(*kubevirt.VirtualMachineInstance); ok {
					m.phases.changed(before, after)
				}
			case *kubevirt.VirtualMachineInstanceMigration:
				if before, ok := before.(*kubevirt.VirtualMachineInstanceMigration); ok {
					m.phases.migrated(before, after)
				}
			}
		},
	}
}

// Start implements manager.Runnable: only a leader, which has the cache, reports.
func (m *Measures) Start(ctx context.Context) error {
	if err := m.registry.Register(m); err != nil {
		if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			return nil // another controller of this process reports
		}
		return fmt.Errorf("register the metrics of VMs: %w", err)
	}
	<-ctx.Done()
	m.registry.Unregister(m)
	return nil
}

// Describe implements prometheus.Collector.
func (m *Measures) Describe(to chan<- *prometheus.Desc) {
	for _, p := range m.parts {
		p.Describe(to)
	}
	for _, v := range m.phases.vectors() {
		v.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Measures) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	all, err := read(ctx, m.client, m.config)
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	} else {
		for _, p := range m.parts {
			p.collect(all, func(d *prometheus.Desc, value float64, labels ...string) {
				one, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, value, labels...)
				if err != nil {
					one = prometheus.NewInvalidMetric(d, err)
				}
				to <- one
			})
		}
	}
	for _, v := range m.phases.vectors() {
		v.Collect(to)
	}
}

// set describes metrics by their names.
type set map[string]*prometheus.Desc

func (s set) add(name, help string, labels ...string) {
	s[name] = prometheus.NewDesc("kubevirt_"+name, help, labels, nil)
}

// Describe implements part.
func (s set) Describe(to chan<- *prometheus.Desc) {
	for _, d := range s {
		to <- d
	}
}
