package disk

import (
	"context"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// metricsDisk is a disk with metrics of the node and the VM, which the shim writes while
// the guest reads it.
func metricsDisk(files folders) isoDisk {
	return isoDisk{
		files: files,
		name:  func(k Disk) string { return "metrics-" + k.Name + ".img" },
		write: func(_ context.Context, _ Disk, path string) error { return vhostmd.Create(path) },
	}
}

// MetricsFiles returns the files of a container's disks with metrics.
func (a *Attachments) MetricsFiles(r record.Container) []string {
	var all []string
	for _, k := range of(r) {
		if k.Source == vmspec.SourceMetrics {
			all = append(all, a.kinds.of(k).describe(k).Layers[0].Path)
		}
	}
	return all
}
