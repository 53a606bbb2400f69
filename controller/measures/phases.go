package measures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubevirt "kubevirt.io/api/core/v1"
)

// phases measures how long instances take to their phases. The API server's times are seconds.
type phases struct {
	fromPhase, fromCreation, fromDeletion *prometheus.HistogramVec

	now func() time.Time
}

func newPhases(now func() time.Time) phases {
	histogram := func(from, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubevirt_vmi_phase_transition_time" + from + "_seconds", Help: help,
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600},
		}, labels)
	}
	return phases{
		fromPhase:    histogram("", "Time between two phases of an instance.", "phase", "last_phase"),
		fromCreation: histogram("_from_creation", "Time from an instance's creation to a phase.", "phase"),
		fromDeletion: histogram("_from_deletion", "Time from an instance's deletion to its end.", "phase"),
		now:          now,
	}
}

func (p phases) vectors() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{p.fromPhase, p.fromCreation, p.fromDeletion}
}

// changed measures an instance that has changed, if that is its phase.
func (p phases) changed(before, after *kubevirt.VirtualMachineInstance) {
	phase, now := after.Status.Phase, p.now()
	if before.UID != after.UID || before.Status.Phase == phase {
		return
	}
	seconds := func(from time.Time) float64 { return max(0, now.Sub(from).Seconds()) }
	p.fromCreation.WithLabelValues(string(phase)).Observe(seconds(after.CreationTimestamp.Time))
	for _, t := range before.Status.PhaseTransitionTimestamps {
		if t.Phase == before.Status.Phase {
			p.fromPhase.WithLabelValues(string(phase), string(t.Phase)).Observe(seconds(t.PhaseTransitionTimestamp.Time))
		}
	}
	if after.DeletionTimestamp != nil && after.IsFinal() {
		p.fromDeletion.WithLabelValues(string(phase)).Observe(seconds(after.DeletionTimestamp.Time))
	}
}
