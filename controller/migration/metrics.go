package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectTime bounds the read of one scrape.
const collectTime = 5 * time.Second

// measures reports migrations to Prometheus, by the names and labels of KubeVirt.
type measures struct {
	client   client.Reader
	registry prometheus.Registerer

	unset, pending, scheduling, running, succeeded, failed *prometheus.Desc
}

func newMeasures(c client.Reader, registry prometheus.Registerer) *measures {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubevirt_vmi_migration"+name, help, labels, nil)
	}
	ended := []string{"vmi", "vmim", "namespace"}
	return &measures{
		client: c, registry: registry,
		unset:      of("s_in_unset_phase", "Migrations that the controller has not seen yet."),
		pending:    of("s_in_pending_phase", "Migrations that wait for others."),
		scheduling: of("s_in_scheduling_phase", "Migrations whose target pod does not run yet."),
		running:    of("s_in_running_phase", "Migrations whose target pod runs."),
		succeeded:  of("_succeeded", "1 for a migration that succeeded.", ended...),
		failed:     of("_failed", "1 for a migration that failed.", ended...),
	}
}

// Start implements manager.Runnable: only a leader, which has the cache, reports.
func (c *measures) Start(ctx context.Context) error {
	if err := c.registry.Register(c); err != nil {
		if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			return nil // another controller of this process reports
		}
		return fmt.Errorf("register the migrations' metrics: %w", err)
	}
	<-ctx.Done()
	c.registry.Unregister(c)
	return nil
}

// Describe implements prometheus.Collector.
func (c *measures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.unset, c.pending, c.scheduling, c.running, c.succeeded, c.failed} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It reads the cache.
func (c *measures) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := c.client.List(ctx, &list, client.DisableReadYourWritesConsistency, client.UnsafeDisableDeepCopy); err != nil {
		to <- prometheus.NewInvalidMetric(c.running, fmt.Errorf("list migrations: %w", err))
		return
	}
	counts := map[*prometheus.Desc]int{}
	for i := range list.Items {
		switch m := &list.Items[i]; m.Status.Phase {
		case kubevirt.MigrationPhaseUnset:
			counts[c.unset]++
		case kubevirt.MigrationPending:
			counts[c.pending]++
		case kubevirt.MigrationScheduling:
			counts[c.scheduling]++
		case kubevirt.MigrationSucceeded:
			send(c.succeeded, 1, m.Spec.VMIName, m.Name, m.Namespace)
		case kubevirt.MigrationFailed:
			send(c.failed, 1, m.Spec.VMIName, m.Name, m.Namespace)
		default:
			counts[c.running]++
		}
	}
	for _, d := range []*prometheus.Desc{c.unset, c.pending, c.scheduling, c.running} {
		send(d, counts[d])
	}
}
