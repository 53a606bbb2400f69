package migrate

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/migrate/link"
)

// Sockets is a folder with the sockets of one migration. On the source, the folder is
// root's, and QEMU can pass through it; on the target, it is QEMU's, which listens there.
type Sockets struct{ Dir string }

// Memory returns the path of the socket for the guest's memory.
func (s Sockets) Memory() string { return filepath.Join(s.Dir, "memory") }

// Disks returns the path of the socket for disks.
func (s Sockets) Disks() string { return filepath.Join(s.Dir, "disks") }

func uri(path string) string { return "unix://" + path }

// MakeSource makes the source's folder. An older one of the same migration is removed.
func (s Sockets) MakeSource() error { return s.make(0o711, 0, 0) }

// MakeTarget makes the target's folder for a QEMU with these ids.
func (s Sockets) MakeTarget(uid, gid uint32) error { return s.make(0o700, int(uid), int(gid)) }

func (s Sockets) make(mode os.FileMode, uid, gid int) error {
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("make the folder of a migration's sockets: %w", err)
	}
	if err := os.Mkdir(s.Dir, mode); err != nil {
		return fmt.Errorf("make the folder of a migration's sockets: %w", err)
	}
	if err := os.Chmod(s.Dir, mode); err != nil { // whatever the umask is
		return fmt.Errorf("make the folder of a migration's sockets: %w", err)
	}
	if err := os.Chown(s.Dir, uid, gid); err != nil {
		return fmt.Errorf("make the folder of a migration's sockets: %w", err)
	}
	return nil
}

// Remove removes the folder. A missing one is no error.
func (s Sockets) Remove() error { return os.RemoveAll(s.Dir) }

// listen returns the listeners of the source's sockets, by their streams. QEMU, as uid,
// can connect to them.
func (s Sockets) listen(ctx context.Context, uid, gid uint32) (map[link.Stream]net.Listener, error) {
	all := map[link.Stream]net.Listener{}
	for stream, path := range map[link.Stream]string{link.Memory: s.Memory(), link.Disks: s.Disks()} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err == nil {
			all[stream] = l
			err = os.Chown(path, int(uid), int(gid))
		}
		if err == nil {
			err = os.Chmod(path, 0o600)
		}
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, fmt.Errorf("listen for a migration's streams: %w", err)
		}
	}
	return all, nil
}
