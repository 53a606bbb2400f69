package vmspec

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// The block sizes in bytes that QEMU supports. An emulated SATA disk has the least one.
const (
	leastBlockSize = 512
	mostBlockSize  = 2 << 20
)

// BlockSize is the size in bytes of a disk's blocks, as the guest sees it; 0 is QEMU's
// default.
type BlockSize struct {
	Logical  uint32 `json:"logical,omitempty"`
	Physical uint32 `json:"physical,omitempty"`
	// MatchVolume says that the sizes are those of the volume, which the node finds out,
	// see [DiskFacts].
	MatchVolume bool `json:"matchVolume,omitempty"`
}

// readBlockSize reads the size of a disk's blocks. The table of fields has checked the
// sizes themselves.
func (disk *Disk) readBlockSize(at *field.Path, given *kubevirt.BlockSize) field.ErrorList {
	if given == nil {
		return nil
	}
	custom := given.Custom
	match := given.MatchVolume != nil && isOr(given.MatchVolume.Enabled, true)
	switch {
	case custom != nil && match:
		return field.ErrorList{refused(at, "custom and matchVolume: use one of them")}
	case (custom != nil || match) && (disk.CDROM || disk.LUN):
		return field.ErrorList{refused(at, "goes with disk; a cdrom and a lun have their own")}
	case match && disk.Network != nil:
		return field.ErrorList{refused(at.Child("matchVolume"), "the node does not know the block size of a network disk; use custom")}
	case match && disk.Source != "" && !disk.OnVolume():
		return field.ErrorList{refused(at.Child("matchVolume"), "needs a PVC or a hostDisk; use custom")}
	case match && (disk.Bus == BusSATA || disk.Bus == BusUSB):
		return field.ErrorList{refused(at.Child("matchVolume"), "goes with bus virtio or scsi")}
	case match:
		disk.BlockSize = BlockSize{MatchVolume: true}
		return nil
	case custom == nil:
		return nil
	case disk.Bus == BusUSB:
		return field.ErrorList{refused(at.Child("custom"), "goes with bus virtio, scsi or sata: a disk on bus usb has blocks of %d bytes", leastBlockSize)}
	}
	at = at.Child("custom")
	problems := requiredSize(at.Child("logical"), custom.Logical)
	problems = append(problems, requiredSize(at.Child("physical"), custom.Physical)...)
	switch {
	case len(problems) > 0:
	case custom.Logical > custom.Physical:
		problems = append(problems, invalid(at.Child("logical"), custom.Logical, "larger than physical, %d", custom.Physical))
	case disk.Bus == BusSATA && custom.Logical != leastBlockSize:
		problems = append(problems, invalid(at.Child("logical"), custom.Logical, "a disk on bus sata has blocks of %d bytes", leastBlockSize))
	}
	disk.BlockSize = BlockSize{Logical: uint32(custom.Logical), Physical: uint32(custom.Physical)}
	return problems
}

func requiredSize(at *field.Path, size uint) field.ErrorList {
	if size == 0 {
		return field.ErrorList{field.Required(at, "a size in bytes, such as 4096")}
	}
	return nil
}

// blockSize takes a size that QEMU supports.
func blockSize(at *field.Path, value any) *field.Error {
	size, ok := value.(int64)
	if !ok || size < leastBlockSize || size > mostBlockSize || size&(size-1) != 0 {
		return invalid(at, value, "must be a power of 2 from %d to %d", leastBlockSize, mostBlockSize)
	}
	return nil
}
