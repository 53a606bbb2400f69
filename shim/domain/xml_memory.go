package domain

import (
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// memoryBacking returns where the guest's memory is; nil for QEMU's own.
//
// virtiofsd must reach the memory, in which the guest's requests are. Huge pages come from an
// anonymous file too, so that QEMU needs no file system of huge pages. QEMU reserves them when it
// starts, and gets each when the guest first uses it: by then QEMU is in the VM's cgroup, which
// counts and limits huge pages.
func memoryBacking(spec vmspec.Spec) *libvirtxml.DomainMemoryBacking {
	if len(spec.Filesystems) == 0 && spec.HugePage == 0 {
		return nil
	}
	backing := &libvirtxml.DomainMemoryBacking{MemorySource: &libvirtxml.DomainMemorySource{Type: "memfd"}}
	if spec.HugePage > 0 {
		backing.MemoryHugePages = &libvirtxml.DomainMemoryHugepages{
			Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(spec.HugePage / mib), Unit: "MiB"}},
		}
	}
	if len(spec.Filesystems) > 0 {
		backing.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	}
	return backing
}
