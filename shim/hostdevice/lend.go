package hostdevice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Lend lets a VM's user open the nodes of its devices, as their owner. No other container
// has them.
func (n Node) Lend(devices []Device, uid uint32) error {
	for _, d := range devices {
		if err := os.Lchown(filepath.Join(n.Root, d.Node), int(uid), -1); err != nil {
			return fmt.Errorf("let QEMU open %s device %s: %w", d.Kind, d.Address, err)
		}
	}
	return nil
}

// TakeBack returns the nodes that a VM's user owns to root. Others stay, and a missing node
// is no error: a device can be unplugged.
func (n Node) TakeBack(devices []Device, uid uint32) error {
	var errs []error
	for _, d := range devices {
		path := filepath.Join(n.Root, d.Node)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != uid {
				continue
			}
			err = os.Lchown(path, 0, -1)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take %s device %s back: %w", d.Kind, d.Address, err))
		}
	}
	return errors.Join(errs...)
}
