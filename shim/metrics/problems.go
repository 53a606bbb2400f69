package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// problems collects what is wrong with the node, also while libvirtd or containerd does not answer.
type problems struct {
	all     func() []nodeproblems.Problem
	problem series
}

// CollectProblems adds the node's problems to each later scrape.
func (m *Metrics) CollectProblems(all func() []nodeproblems.Problem) {
	m.registry.MustRegister(&problems{all, gauge(namespace+"_node_problem",
		"1 if the node has a problem that its administrator must solve, else 0.", "reason")})
}

// Describe implements prometheus.Collector.
func (p *problems) Describe(to chan<- *prometheus.Desc) { to <- p.problem.desc }

// Collect implements prometheus.Collector.
func (p *problems) Collect(to chan<- prometheus.Metric) {
	has := map[nodeproblems.Reason]bool{}
	for _, one := range p.all() {
		has[one.Reason] = true
	}
	for _, r := range nodeproblems.Reasons() {
		p.problem.send(to, number(has[r]), string(r))
	}
}
