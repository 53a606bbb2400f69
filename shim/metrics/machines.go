package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// machines collects the types of boards that a later QEMU will not have.
type machines struct {
	deprecated atomic.Pointer[[]string]
	series     series
	node       *nodeName
}

func newMachines(node *nodeName) *machines {
	return &machines{node: node, series: gauge("kubevirt_node_deprecated_machine_types",
		"1 for each type of board that the node's QEMU has, and a later one will not.", "machine_type", "node")}
}

// DeprecatedMachines records the types of boards that the node's QEMU calls deprecated, each once.
func (m *Metrics) DeprecatedMachines(types []string) { m.machines.deprecated.Store(&types) }

// Describe implements prometheus.Collector.
func (m *machines) Describe(to chan<- *prometheus.Desc) { to <- m.series.desc }

// Collect implements prometheus.Collector.
func (m *machines) Collect(to chan<- prometheus.Metric) {
	if types := m.deprecated.Load(); types != nil {
		for _, name := range *types {
			m.series.send(to, 1, name, m.node.get())
		}
	}
}
