package move

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestOtherFiles: libvirt checks the file systems of a guest's files unless the target has found all of them.
func TestOtherFiles(t *testing.T) {
	plugged := func(d vmspec.Disk) record.Container {
		return record.Container{Plugged: []record.PluggedDisk{{Disk: d}}}
	}
	started := func(all ...vmspec.Disk) record.Container { return record.Container{Spec: vmspec.Spec{Disks: all}} }
	onFile := vmspec.Disk{Name: "file", Source: vmspec.SourcePVC}
	onDevice := vmspec.Disk{Name: "device", Source: vmspec.SourcePVC, Block: true}
	host := vmspec.Disk{Name: "host", Source: vmspec.SourceHostDisk, Shared: true}
	for name, tt := range map[string]struct {
		vm            record.Container
		found, absent bool // with a target that has found the files, and with one that has not looked
	}{
		"a plugged file":       {plugged(onFile), true, true},
		"a plugged device":     {plugged(onDevice), false, false},
		"a file":               {started(onDevice, onFile), true, false},
		"a device":             {started(onDevice), false, false},
		"an image":             {started(vmspec.Disk{Name: "root", Source: vmspec.SourceImage}), false, false},
		"a hostDisk":           {started(host), false, false},
		"a file on a hostDisk": {started(onFile, host), false, false},
	} {
		if got := otherFiles(tt.vm, order.Identity{Files: true}); got != tt.found {
			t.Errorf("%s, found: %t", name, got)
		}
		if got := otherFiles(tt.vm, order.Identity{}); got != tt.absent {
			t.Errorf("%s, not looked for: %t", name, got)
		}
	}
}
