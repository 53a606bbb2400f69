package disk

import (
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// pageBlock is the largest logical block that guests support: their page.
const pageBlock = 4096

// blockSize returns the size of a volume's blocks: a device's own, or that of the file
// system on which the file is.
func (p pvc) blockSize(k Disk) (vmspec.BlockSize, error) {
	if k.Block {
		f, _, err := p.block.devices.open(k.Host, true)
		if err != nil {
			return vmspec.BlockSize{}, err
		}
		defer f.Close()
		return p.block.devices.blockSize(f)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(k.Host, &st); err != nil {
		return vmspec.BlockSize{}, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	size := uint32(min(max(st.Bsize, 512), pageBlock))
	size = 1 << (bits.Len32(size) - 1)
	return vmspec.BlockSize{Logical: size, Physical: size}, nil
}

func (kernelDevices) blockSize(f *os.File) (vmspec.BlockSize, error) {
	logical, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return vmspec.BlockSize{}, os.NewSyscallError("ioctl BLKSSZGET", err)
	}
	physical, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKPBSZGET)
	if err != nil {
		return vmspec.BlockSize{}, os.NewSyscallError("ioctl BLKPBSZGET", err)
	}
	return vmspec.BlockSize{Logical: uint32(logical), Physical: uint32(max(logical, physical))}, nil
}
