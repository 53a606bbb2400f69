package record

import (
	"net/netip"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Disk is the source of a disk in a VM's spec, as far as it has been resolved or created.
type Disk struct {
	// Image is the registry disk, which is held for this container; nil for disks
	// with other sources.
	Image *imageunpack.Disk `json:"image,omitempty"`
	// Import is the disk of another node that this disk is; nil for disks with other sources.
	Import *Import `json:"import,omitempty"`
	// Network is how QEMU reaches a disk over the network; nil for other disks.
	Network *NetworkDisk `json:"network,omitempty"`
	// Length is how many bytes of its device a guest has as a disk, if the device is longer; 0 for all.
	Length int64 `json:"length,omitempty"`
	// BlockSize is that of the volume of a disk whose guest must see it.
	BlockSize vmspec.BlockSize `json:"blockSize,omitzero"`
}

// NetworkDisk is how QEMU reaches a PVC over the network. Records do not contain its
// password or key.
type NetworkDisk struct {
	// Portals are the chosen portal of an iSCSI target, or the monitors of Ceph.
	Portals []netip.AddrPort `json:"portals"`
	// User is CHAP's; empty for none.
	User string `json:"user,omitempty"`
}

// Import is a disk that another node exports over iSCSI. Records do not contain its password.
type Import struct {
	Name      string `json:"name"`
	Portal    string `json:"portal"`
	Target    string `json:"target"`
	LUN       int    `json:"lun"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	// Shareable allows several VMs to use the disk at the same time.
	Shareable bool `json:"shareable,omitempty"`
}
