package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// filesystems returns the file systems of the VM. Their virtiofsd are not libvirt's: libvirt would run
// them as root.
func filesystems(desc Description) ([]libvirtxml.DomainFilesystem, error) {
	if len(desc.FilesystemSockets) != len(desc.Spec.Filesystems) {
		return nil, fmt.Errorf("%d sockets for %d file systems in the spec", len(desc.FilesystemSockets), len(desc.Spec.Filesystems))
	}
	var all []libvirtxml.DomainFilesystem
	for i, f := range desc.Spec.Filesystems {
		all = append(all, libvirtxml.DomainFilesystem{
			Driver: &libvirtxml.DomainFilesystemDriver{Type: "virtiofs"},
			Source: &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Socket: desc.FilesystemSockets[i]}},
			Target: &libvirtxml.DomainFilesystemTarget{Dir: f.Name},
			Alias:  &libvirtxml.DomainAlias{Name: "ua-fs_" + f.Name},
		})
	}
	return all, nil
}
