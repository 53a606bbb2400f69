package measures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// phases measures how long instances and migrations take to their phases, and counts VMs that are created. The API server's
// times are seconds.
type phases struct {
	fromPhase, fromCreation, fromDeletion *prometheus.HistogramVec
	ofMigration                           *prometheus.HistogramVec
	created                               *prometheus.CounterVec

	now func() time.Time
}

func newPhases(now func() time.Time) phases {
	histogram := func(of, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubevirt_vmi_" + of + "_seconds", Help: help,
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}, // KubeVirt's,
		}, labels)
	}
	return phases{
		fromPhase:    histogram("phase_transition_time", "Time between two phases of an instance.", "phase", "last_phase"),
		fromCreation: histogram("phase_transition_time_from_creation", "Time from an instance's creation to a phase.", "phase"),
		fromDeletion: histogram("phase_transition_time_from_deletion", "Time from an instance's deletion to its end.", "phase"),
		ofMigration:  histogram("migration_phase_transition_time_from_creation", "Time from a migration's creation to a phase.", "phase"),
		created: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubevirt_vm_created_by_pod_total", Help: "VMs that were created since the controller leads.",
		}, []string{"namespace"}),
		now: now,
	}
}

func (p phases) vectors() []prometheus.Collector {
	return []prometheus.Collector{p.fromPhase, p.fromCreation, p.fromDeletion, p.ofMigration, p.created}
}

// since returns the seconds since a time; 0 for one that is to come.
func (p phases) since(t metav1.Time) float64 { return max(0, p.now().Sub(t.Time).Seconds()) }

// migrated measures a migration that has changed, if that is its phase.
func (p phases) migrated(before, after *kubevirt.VirtualMachineInstanceMigration) {
	if before.UID == after.UID && before.Status.Phase != after.Status.Phase {
		p.ofMigration.WithLabelValues(string(after.Status.Phase)).Observe(p.since(after.CreationTimestamp))
	}
}

// changed measures an instance that has changed, if that is its phase.
func (p phases) changed(before, after *kubevirt.VirtualMachineInstance) {
	phase := after.Status.Phase
	if before.UID != after.UID || before.Status.Phase == phase {
		return
	}
	p.fromCreation.WithLabelValues(string(phase)).Observe(p.since(after.CreationTimestamp))
	for _, t := range before.Status.PhaseTransitionTimestamps {
		if t.Phase == before.Status.Phase {
			p.fromPhase.WithLabelValues(string(phase), string(t.Phase)).Observe(p.since(t.PhaseTransitionTimestamp))
		}
	}
	if after.IsFinal() {
		p.ended(after, phase)
	}
}

// gone measures an instance that was removed before it was seen to end.
func (p phases) gone(vmi *kubevirt.VirtualMachineInstance) {
	if !vmi.IsFinal() {
		p.ended(vmi, kubevirt.Succeeded)
	}
}

// ended measures the end of an instance that was deleted.
func (p phases) ended(vmi *kubevirt.VirtualMachineInstance, phase kubevirt.VirtualMachineInstancePhase) {
	if vmi.DeletionTimestamp != nil {
		p.fromDeletion.WithLabelValues(string(phase)).Observe(p.since(*vmi.DeletionTimestamp))
	}
}
