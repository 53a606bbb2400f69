package disk

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// seen is one look at the node's processes; [witness.Scan].
type seen interface {
	// Holders returns the processes that have a file or a block device open.
	Holders(f witness.File) ([]witness.Holder, error)
	// Remotes returns the QEMUs that have a disk open over the network.
	Remotes(is func(witness.RemoteDisk) bool) []witness.Holder
}

// looker looks at the node's processes.
type looker func() (seen, error)

// once returns a looker for the disks of one call, which looks when it is first asked. A reservation decides between
// VMs of this shim; the look finds QEMUs of which this shim does not know, and these are older than the shim.
func (l looker) once() looker { return sync.OnceValues(l) }

func kernelLooker(n witness.Node) looker {
	return func() (seen, error) { return n.Scan() }
}

// lostRemedy is what to do with a guest that the shim may not know.
const lostRemedy = `end that guest first, see "A guest that libvirt or its record has lost" in nodevirt's docs/node.md`

// held returns ErrInUse if another process has a file or a block device open that a disk is about to use in this way.
func held(k Disk, file witness.File, as use) error {
	if as == shares {
		return nil
	}
	now, err := k.look()
	if err != nil {
		return fmt.Errorf("find out who has the volume open: %w", err)
	}
	holders, err := now.Holders(file)
	if err != nil {
		return fmt.Errorf("find out who has the volume open: %w", err)
	}
	h, found := other(k, as, holders)
	if !found {
		return nil
	}
	what := "it"
	if file.Block {
		what = fmt.Sprintf("device %d:%d", unix.Major(file.Device), unix.Minor(file.Device))
	}
	return fmt.Errorf("the volume is %w: %s has %s open; %s", ErrInUse, h, what, lostRemedy)
}

// other returns a holder that keeps a disk from being used.
func other(k Disk, as use, holders []witness.Holder) (witness.Holder, bool) {
	i := slices.IndexFunc(holders, func(h witness.Holder) bool {
		return h.UID != k.VM.Domain.UID && (as != reads || h.Writes) // not the VM's own, nor another reader
	})
	if i < 0 {
		return witness.Holder{}, false
	}
	return holders[i], true
}

// unheld returns ErrInUse if another process has an open file of a disk open, by whichever path or mount. QEMU's locks
// say so too, but not on each file system.
func unheld(k Disk, f *os.File) error {
	file, ok, err := witness.FileOf(f)
	if err != nil || !ok {
		return err
	}
	as := k.use()
	if as == alone && readsOnly(f) {
		as = reads // what is below an overlay
	}
	return held(k, file, as)
}

// unheldAll is unheld for the files of FD groups.
func unheldAll(k Disk, opened map[string][]*os.File) error {
	for _, files := range opened {
		for _, f := range files {
			if err := unheld(k, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func readsOnly(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY
}

// unheldRemote returns ErrInUse if a QEMU that this shim does not manage has a network disk open. Those that it manages
// have reservations: their command lines, which a guest that has taken over its QEMU can change, are not read.
func unheldRemote(k Disk, reserved *reservations, is func(witness.RemoteDisk) bool) error {
	if k.use() == shares {
		return nil
	}
	now, err := k.look()
	if err != nil {
		return fmt.Errorf("find out who has the disk open: %w", err)
	}
	holders := slices.DeleteFunc(now.Remotes(is), func(h witness.Holder) bool { return reserved.manages(h.Container) })
	if h, found := other(k, k.use(), holders); found {
		return fmt.Errorf("%w: %s has it open; %s", ErrInUse, h, lostRemedy)
	}
	return nil
}

// isLUN returns a test for a target's LUN.
func isLUN(target string, lun int) func(witness.RemoteDisk) bool {
	return func(d witness.RemoteDisk) bool { return d.Target == target && d.LUN == lun }
}

// isNetwork returns a test for a PVC on the network. Clusters of Ceph differ by their monitors.
func isNetwork(k Disk) func(witness.RemoteDisk) bool {
	if k.Network.RBD == nil {
		return isLUN(k.Network.ISCSI.Target, k.Network.ISCSI.LUN)
	}
	var content record.NetworkDisk
	if k.Content.Network != nil {
		content = *k.Content.Network
	}
	return func(d witness.RemoteDisk) bool {
		return d.Pool == k.Network.RBD.Pool && d.Image == k.Network.RBD.Image &&
			slices.ContainsFunc(d.Monitors, func(m witness.RemoteServer) bool {
				at := net.JoinHostPort(m.Host, m.Port)
				for _, p := range content.Portals {
					if p.String() == at {
						return true
					}
				}
				return slices.Contains(k.Network.RBD.Monitors, at)
			})
	}
}
