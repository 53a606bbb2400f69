package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// blockPVC is a PVC that is a block device.
type blockPVC struct {
	passive
	devices  devices
	reserved *reservations
	origin   origin
}

func (blockPVC) takesTime(k Disk) bool { return pvcTakesTime(k) }

func (b blockPVC) create(ctx context.Context, k Disk) error {
	f, number, err := b.devices.open(k.Host, k.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	if k.LUN {
		if err := checkSCSI(f); err != nil {
			return err
		}
	}
	// Before the kernel's lock, which a VM that uses the device would notice.
	if err := b.ask(k, number, b.reserved.free); err != nil {
		return err
	}
	if !k.comes() {
		if err := b.origin.write(ctx, k, f); err != nil {
			return err
		}
	}
	// The lock ends here. But a kubelet repeats this call, and not a start.
	return lockedNow(k, f)
}

// getVersion is SG_GET_VERSION_NUM of the kernel's scsi/sg.h.
const getVersion = 0x2282

// checkSCSI returns an error for a device that takes no SCSI commands.
func checkSCSI(device *os.File) error {
	if _, err := unix.IoctlGetInt(int(device.Fd()), getVersion); err != nil {
		return fmt.Errorf("%w: a lun needs a SCSI device, which the volume is not (%w): use a disk, or another volume", ErrVolume, err)
	}
	return nil
}

func (b blockPVC) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, number, err := b.devices.open(k.Host, k.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := b.ask(k, number, b.reserved.take); err != nil {
		return nil, err // detach drops the reservation
	}
	if err := lockedNow(k, f); err != nil {
		return nil, err
	}
	if err := b.removeNode(k); err != nil {
		return nil, err
	}
	return nil, b.devices.makeNode(b.node(k), number, k.VM.Domain.UID, k.VM.Domain.GID)
}

// ask asks for a device by its number, whichever node of it a pod has: the reservations, and then the processes
// that have it open. A guest of which the shim does not know has no reservation.
func (b blockPVC) ask(k Disk, number uint64, ask func(Disk, string) error) error {
	if err := ask(k, fmt.Sprintf("device %d", number)); err != nil {
		return fmt.Errorf("the volume is %w", err)
	}
	return held(k, witness.Device(number), k.use())
}

func (b blockPVC) detach(_ context.Context, k Disk) error {
	b.reserved.drop(k)
	return b.removeNode(k)
}

func (b blockPVC) removeNode(k Disk) error {
	if err := os.Remove(b.node(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// recover reserves the device for a VM that may run.
func (b blockPVC) recover(k Disk, active bool) error {
	if !active {
		return nil
	}
	f, number, err := b.devices.open(k.Host, k.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	return b.reserved.take(k, fmt.Sprintf("device %d", number))
}

func (b blockPVC) describe(k Disk) domain.Disk {
	return describePVC(k, domain.Layer{Path: b.node(k), Block: true, Length: k.Content.Length})
}

// node is the VM's own node of the device. QEMU has no right on the volume's.
func (b blockPVC) node(k Disk) string { return b.devices.path(nodePrefix(k.VM.ID) + k.Name) }

// nodePrefix begins the names of a VM's nodes of devices.
func nodePrefix(id string) string { return "nodevirt-" + id + "-" }

// removeNodes removes a VM's nodes of devices, whichever disks they are of: its record may be an old one.
func removeNodes(d devices, id string) error {
	nodes, err := d.nodes(nodePrefix(id))
	if err != nil {
		return fmt.Errorf("list the VM's nodes of devices: %w", err)
	}
	var errs []error
	for _, node := range nodes {
		if err := os.Remove(node); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
