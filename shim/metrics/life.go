package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// life counts what happens to VM containers.
type life struct {
	phases, starts, acquires *prometheus.HistogramVec
	expansions               *prometheus.HistogramVec
	ends                     *prometheus.CounterVec
	disowned                 prometheus.Gauge
}

// The results of a start, or of the search for an image's disk.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

func newLife() life {
	histogram := func(subsystem, name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
			Buckets: []float64{.005, .01, .025, .05, .1, .2, .3, .5, 1, 2.5, 5, 10, 30},
		}, labels)
	}
	l := life{
		phases: histogram("vm", "start_phase_duration_seconds",
			"Duration of a phase of a VM's start, failed phases included.", "phase"),
		starts: histogram("vm", "start_duration_seconds",
			"Duration of a VM's start, without the boot of its guest.", "result"),
		acquires: histogram("image", "acquire_duration_seconds",
			"Time to find, check and hold an image's disk. An image without a disk, which becomes an ordinary container, counts as failed.",
			"result"),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "vm", Name: "ends_total",
			Help: "VMs that ended, by the reason in the container's status.",
		}, []string{"reason"}),
	}
	l.disowned = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "guests_without_pods",
		Help: "Guests that run, and whose pods the API server does not have.",
	})
	l.expansions = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: "disk", Name: "expand_duration_seconds",
		Help:    "Time to make the disks of a VM container if some are expanded, cancelled expansions included.",
		Buckets: []float64{.05, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
	}, []string{"result"})
	// All series exist with 0 from the first scrape on, so that the first event is an increase.
	for _, result := range []string{resultOK, resultFailed} {
		l.starts.WithLabelValues(result)
		l.acquires.WithLabelValues(result)
		l.expansions.WithLabelValues(result)
	}
	for _, reason := range []string{"Completed", "Error", "OOMKilled"} {
		l.ends.WithLabelValues(reason)
	}
	return l
}

func (l life) register(r prometheus.Registerer) {
	r.MustRegister(l.phases, l.starts, l.acquires, l.expansions, l.ends, l.disowned)
}

// GuestsWithoutPods records how many guests run whose pods the API server does not have.
func (m *Metrics) GuestsWithoutPods(n int) { m.life.disowned.Set(float64(n)) }

// StartPhase records how long a phase of a start took.
func (m *Metrics) StartPhase(name string, took time.Duration) {
	m.life.phases.WithLabelValues(name).Observe(took.Seconds())
}

// Started records a start, which failed if err is not nil.
func (m *Metrics) Started(took time.Duration, err error) {
	m.life.starts.WithLabelValues(result(err)).Observe(took.Seconds())
}

// Acquired records a search for an image's disk.
func (m *Metrics) Acquired(took time.Duration, err error) {
	m.life.acquires.WithLabelValues(result(err)).Observe(took.Seconds())
}

// Expanded records the expansion of a container's disks.
func (m *Metrics) Expanded(took time.Duration, err error) {
	m.life.expansions.WithLabelValues(result(err)).Observe(took.Seconds())
}

// Ended records the end of a VM. The reasons must be a small set.
func (m *Metrics) Ended(reason string) { m.life.ends.WithLabelValues(reason).Inc() }

func result(err error) string {
	if err != nil {
		return resultFailed
	}
	return resultOK
}
