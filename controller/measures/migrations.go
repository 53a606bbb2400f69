package measures

import kubevirt "kubevirt.io/api/core/v1"

// migrations counts migrations by their phases.
type migrations struct{ set }

const (
	migrationSucceeded = "vmi_migration_succeeded"
	migrationFailed    = "vmi_migration_failed"
	migrationStart     = "vmi_migration_start_time_seconds"
	migrationEnd       = "vmi_migration_end_time_seconds"
)

// waiting returns the metric of a phase before a migration's end.
func waiting(phase kubevirt.VirtualMachineInstanceMigrationPhase) string {
	name := map[kubevirt.VirtualMachineInstanceMigrationPhase]string{
		kubevirt.MigrationPhaseUnset: "unset", kubevirt.MigrationPending: "pending", kubevirt.MigrationScheduling: "scheduling",
	}[phase]
	if name == "" {
		name = "running"
	}
	return "vmi_migrations_in_" + name + "_phase"
}

func newMigrations() migrations {
	m := migrations{set{}}
	m.add(waiting(kubevirt.MigrationPhaseUnset), "Migrations that the controller has not seen yet.")
	m.add(waiting(kubevirt.MigrationPending), "Migrations that wait for others.")
	m.add(waiting(kubevirt.MigrationScheduling), "Migrations whose target pod does not run yet.")
	m.add(waiting(kubevirt.MigrationRunning), "Migrations whose target pod runs.")
	m.add(migrationSucceeded, "1 for a migration that succeeded.", "vmi", "vmim", "namespace")
	m.add(migrationFailed, "1 for a migration that failed.", "vmi", "vmim", "namespace")
	m.add(migrationStart, "When a migration began to copy, in seconds since the epoch.", "node", "namespace", "name", "migration_name")
	m.add(migrationEnd, "When a migration ended, in seconds since the epoch.", "node", "namespace", "name", "migration_name", "status")
	return m
}

// times sends when a migration began and ended. Its node is where the guest then was.
func (m migrations) times(send sender, one *kubevirt.VirtualMachineInstanceMigration) {
	s := one.Status.MigrationState
	if s == nil {
		return
	}
	node, end := s.SourceNode, "failed"
	if one.Status.Phase == kubevirt.MigrationSucceeded {
		node, end = s.TargetNode, "succeeded"
	}
	if s.StartTimestamp != nil {
		send(m.set[migrationStart], float64(s.StartTimestamp.Unix()), node, one.Namespace, one.Spec.VMIName, one.Name)
	}
	if s.EndTimestamp != nil {
		send(m.set[migrationEnd], float64(s.EndTimestamp.Unix()), node, one.Namespace, one.Spec.VMIName, one.Name, end)
	}
}

func (m migrations) collect(all *objects, send sender) {
	counts := map[string]float64{}
	for i := range all.migrations.Items {
		one := &all.migrations.Items[i]
		m.times(send, one)
		switch one.Status.Phase {
		case kubevirt.MigrationSucceeded:
			send(m.set[migrationSucceeded], 1, one.Spec.VMIName, one.Name, one.Namespace)
		case kubevirt.MigrationFailed:
			send(m.set[migrationFailed], 1, one.Spec.VMIName, one.Name, one.Namespace)
		default:
			counts[waiting(one.Status.Phase)]++
		}
	}
	for _, phase := range []kubevirt.VirtualMachineInstanceMigrationPhase{
		kubevirt.MigrationPhaseUnset, kubevirt.MigrationPending, kubevirt.MigrationScheduling, kubevirt.MigrationRunning,
	} {
		send(m.set[waiting(phase)], counts[waiting(phase)])
	}
}
