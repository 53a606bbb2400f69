package disk

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The file systems of several nodes that golang.org/x/sys/unix does not name.
const (
	gfs2   = 0x01161970
	gpfs   = 0x47504653
	lustre = 0x0bd00bd0
)

// Same returns an error if this node may have another file than the one that a guest, which runs on
// another node, has as a disk. The file is the same on a network file system; on another one if QEMU's
// locks of the other node are seen here. Devices are the cluster's to know.
func (a *Attachments) Same(r record.Container, d vmspec.Disk) error {
	k := Disk{Disk: d, VM: r}
	if k.Source != vmspec.SourcePVC || k.Block {
		return nil
	}
	f, err := (filePVC{}).open(k, false)
	if err != nil {
		return k.wrap("open", err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return k.wrap("open", fmt.Errorf("find its file system: %w", err))
	}
	if ofNetwork(st.Type) {
		return nil
	}
	used, err := persist.InUse(f)
	if err == nil && !used {
		err = fmt.Errorf("%w: the guest uses it on its node, and its file system shows no such use here: both nodes must see the same file: "+
			"use a volume on NFS, CephFS or SMB, or one with volumeMode Block", ErrVolume)
	}
	return k.wrap("open", err)
}

// ofNetwork reports whether a file system is that of several nodes, by its number in Linux.
func ofNetwork(kind int64) bool {
	switch kind {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.AFS_SUPER_MAGIC,
		unix.AFS_FS_MAGIC, unix.OCFS2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, gfs2, gpfs, lustre:
		return true
	}
	return false
}
