package metrics

import "github.com/nodevirt/nodevirt/shim/domain"

// migrationSeries are the metrics of guests that are being copied to another node.
type migrationSeries []struct {
	series
	value func(domain.Job) uint64
}

func newMigrationSeries() migrationSeries {
	g := func(name, help string) series { return gauge("kubevirt_vmi_migration_"+name, help, vmLabels()...) }
	type job = domain.Job
	return migrationSeries{
		{g("data_total_bytes", "Memory and disks of the guest to copy to another node."), func(j job) uint64 { return j.Total }},
		{g("data_processed_bytes", "Memory and disks that were copied."), func(j job) uint64 { return j.Processed }},
		{g("data_remaining_bytes", "Memory and disks that remain to be copied."), func(j job) uint64 { return j.Remaining }},
		{g("dirty_memory_rate_bytes", "Memory that the guest writes a second during a migration."), func(j job) uint64 { return j.Dirty }},
		{g("memory_transfer_rate_bytes", "Memory that is copied a second."), func(j job) uint64 { return j.Memory }},
		{g("disk_transfer_rate_bytes", "Data of disks that is copied a second."), func(j job) uint64 { return j.Disk }},
	}
}

func (s migrationSeries) collect(to sender, j domain.Job) {
	for _, m := range s {
		to.send(m.series, float64(m.value(j)))
	}
}
