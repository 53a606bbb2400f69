package measures

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// migrations counts migrations by their phases.
type migrations struct {
	set

	client client.Reader
}

const (
	migrationSucceeded = "vmi_migration_succeeded"
	migrationFailed    = "vmi_migration_failed"
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

func newMigrations(c client.Reader) migrations {
	m := migrations{set{}, c}
	m.add(waiting(kubevirt.MigrationPhaseUnset), "Migrations that the controller has not seen yet.")
	m.add(waiting(kubevirt.MigrationPending), "Migrations that wait for others.")
	m.add(waiting(kubevirt.MigrationScheduling), "Migrations whose target pod does not run yet.")
	m.add(waiting(kubevirt.MigrationRunning), "Migrations whose target pod runs.")
	m.add(migrationSucceeded, "1 for a migration that succeeded.", "vmi", "vmim", "namespace")
	m.add(migrationFailed, "1 for a migration that failed.", "vmi", "vmim", "namespace")
	return m
}

func (m migrations) collect(ctx context.Context, send sender) error {
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := list(ctx, m.client, &all); err != nil {
		return err
	}
	counts := map[string]float64{}
	for i := range all.Items {
		switch one := &all.Items[i]; one.Status.Phase {
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
	return nil
}
