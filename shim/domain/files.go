package domain

import (
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// filesOf returns the files that the domain's QEMU opens by path. It inherits all others, opened, from
// libvirtd. The description has as many disks as its spec.
func filesOf(desc Description) landlock.Files {
	f := landlock.Files{}
	for _, path := range []string{desc.Kernel, desc.Initrd, desc.Ignition} {
		if path != "" {
			f.Read = append(f.Read, path)
		}
	}
	for _, t := range desc.ACPITables {
		f.Read = append(f.Read, t.Path)
	}
	if desc.UEFI != nil {
		f.Read = append(f.Read, desc.UEFI.Code)
		if desc.UEFIVariables != "" {
			f.Write = append(f.Write, desc.UEFIVariables)
		}
	}
	for n, d := range desc.Disks {
		fixed := desc.Spec.Disks[n].ReadOnly || desc.Spec.Disks[n].CDROM
		for i, layer := range d.Layers {
			switch {
			case layer.RBD != nil:
				f.Read = append(f.Read, layer.RBD.Config)
			case layer.ISCSI != nil || layer.FDGroup != "":
			case i > 0 || fixed || layer.ReadOnly:
				f.Read = append(f.Read, layer.Path)
			default:
				f.Write = append(f.Write, layer.Path)
			}
		}
	}
	if desc.Spec.LaunchSecurity.Encrypts(vmspec.EncryptionSEV, vmspec.EncryptionSNP) {
		f.Write = append(f.Write, hostdevice.SEV)
	}
	read, write := hostdevFiles(desc)
	f.Read, f.Write = append(f.Read, read...), append(f.Write, write...)
	if desc.Spec.Display {
		f.Sockets = append(f.Sockets, filepath.Dir(desc.DisplaySocket))
	}
	if desc.MigrationDir != "" {
		f.Sockets = append(f.Sockets, desc.MigrationDir)
	}
	return f
}
