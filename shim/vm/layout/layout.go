// Package layout names the files and sockets of a VM container.
//
// It owns the names below the folders that the shim's config sets. The part
// that uses a file makes, reads and removes it.
package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/console"
)

// Layout holds the folders. Its methods are pure: they open nothing.
type Layout struct {
	// Folder returns the folder of a container's own files.
	Folder func(id string) string
	// Consoles, Agents, Displays and Migrations are the folders of the sockets.
	Consoles, Agents, Displays, Migrations string
	// DomainLogs is the folder of libvirt's logs, which has one file for each domain.
	DomainLogs string
}

// terminals is the number of virtio consoles that a guest has beside the serial
// one. The first is not for commands: systemd puts a login on it.
const terminals = 5

// Make makes the folders of the sockets.
func (l Layout) Make() error {
	for _, dir := range []string{l.Consoles, l.Agents, l.Displays, l.Migrations} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make the folder of sockets %s: %w", dir, err)
		}
	}
	return nil
}

// ConsoleFile is the file to which QEMU appends what the serial console prints.
func (l Layout) ConsoleFile(id string) string { return l.path(id, "console") }

// Log is the CRI log of a container for which the caller of CreateContainer names none.
func (l Layout) Log(id string) string { return l.path(id, "console.log") }

// MemoryFile is the memory of a guest that has not started yet, from a checkpoint. MemoryPipe is
// the pipe by which libvirtd reads it.
func (l Layout) MemoryFile(id string) string { return l.path(id, "memory.zst") }

// MemoryPipe is explained at [Layout.MemoryFile].
func (l Layout) MemoryPipe(id string) string { return l.path(id, "memory.pipe") }

// RAMSocket is the unix socket by which a QEMU that starts gets the RAM of a checkpoint.
func (l Layout) RAMSocket(id string) string { return filepath.Join(l.Agents, id+".ram") }

// TapSocket is the unix socket by which a QEMU that starts gets the taps of network binding plug-ins.
func (l Layout) TapSocket(id string) string { return filepath.Join(l.Agents, id+".taps") }

// Console describes the serial console to the console's follower. log is the
// absolute path of the CRI log.
func (l Layout) Console(id, log string) console.Console {
	return console.Console{ID: id, Raw: l.ConsoleFile(id), Position: l.path(id, "console.position"), Log: log}
}

// ConsoleSocket is the unix socket of the serial console.
func (l Layout) ConsoleSocket(id string) string { return filepath.Join(l.Consoles, id+socket) }

// AgentSocket is the unix socket of the guest agent's port.
func (l Layout) AgentSocket(id string) string { return filepath.Join(l.Agents, id+socket) }

// MetricsSocket is the unix socket of the port on which the guest asks for metrics.
func (l Layout) MetricsSocket(id string) string { return filepath.Join(l.Agents, id+".vmd") }

// TerminalSockets are the unix sockets of the guest's virtio consoles. The first
// is not for commands.
func (l Layout) TerminalSockets(id string) []string {
	var all []string
	for n := range terminals {
		all = append(all, filepath.Join(l.Agents, fmt.Sprintf("%s.%d", id, n)))
	}
	return all
}

// usbSlots is the number of clients' USB devices that a guest can have at once, as with KubeVirt.
const usbSlots = 4

// USBSockets are the unix sockets of the slots for USB devices of clients.
func (l Layout) USBSockets(id string) []string {
	var all []string
	for n := range usbSlots {
		all = append(all, filepath.Join(l.Agents, fmt.Sprintf("%s.usb%d", id, n)))
	}
	return all
}

// DisplayDir is the folder in which QEMU makes the display's socket.
func (l Layout) DisplayDir(id string) string { return filepath.Join(l.Displays, id) }

// DisplaySocket is the unix socket on which QEMU serves VNC.
func (l Layout) DisplaySocket(id string) string { return filepath.Join(l.DisplayDir(id), "vnc") }

// DumpPipe is the pipe through which QEMU writes a dump of its guest's memory.
func (l Layout) DumpPipe(id string) string { return l.path(id, "memory-dump") }

// MigrationDir is the folder of the sockets of a migration to or from the node.
func (l Layout) MigrationDir(id string) string { return filepath.Join(l.Migrations, id) }

// DomainLog is libvirt's log of a domain.
func (l Layout) DomainLog(domain string) string { return filepath.Join(l.DomainLogs, domain+".log") }

const socket = ".sock"

func (l Layout) path(id, name string) string { return filepath.Join(l.Folder(id), name) }

// IgnoreAbsent returns nil for an error that reports a missing file, and other errors as they are.
func IgnoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
