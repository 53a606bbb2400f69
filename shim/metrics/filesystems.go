package metrics

// mostFilesystems bounds the series of a guest.
const mostFilesystems = 32

// filesystemSeries are the metrics of guests' file systems.
type filesystemSeries struct{ capacity, used series }

func newFilesystemSeries() filesystemSeries {
	labels := vmLabels("disk_name", "mount_point", "file_system_type")
	return filesystemSeries{
		capacity: gauge("kubevirt_vmi_filesystem_capacity_bytes", "Size of a file system of the guest, as its agent reports it.", labels...),
		used:     gauge("kubevirt_vmi_filesystem_used_bytes", "Used part of a file system of the guest, as its agent reports it.", labels...),
	}
}

// collect sends each file system once: a guest may name one twice, which would fail the scrape.
func (f filesystemSeries) collect(to sender, all []Filesystem) {
	sent := map[[3]string]bool{}
	for _, one := range all {
		name := [3]string{one.Disk, one.MountPoint, one.Type}
		if one.Total <= 0 || sent[name] || len(sent) == mostFilesystems {
			continue
		}
		sent[name] = true
		to.send(f.capacity, float64(one.Total), name[:]...)
		to.send(f.used, float64(one.Used), name[:]...)
	}
}
