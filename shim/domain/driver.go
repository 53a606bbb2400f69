package domain

import "log/slog"

// Driver is the adapter to one libvirtd: its parts, which share a connection.
type Driver struct {
	Connection *Connection
	Lifecycle  *Lifecycle
	Observer   *Observer
	Balloon    *Balloon
	Sizes      *Sizes
	Processes  *Processes
	Secrets    *Secrets
	Host       *Host
	Hotplug    *Hotplug
	Dumps      *Dumps
	Backups    *Backups
}

// NewDriver returns a driver for the libvirtd at uri, such as "qemu:///system".
// runDir is that libvirtd's run folder (/run/libvirt), which has the files
// with QEMU's process ids.
func NewDriver(uri, runDir string, log *slog.Logger) *Driver {
	conn := &Connection{uri: uri, log: log, orders: newOrders(), unanswered: newOpen(), connected: make(chan struct{})}
	processes := &Processes{runDir: runDir}
	return &Driver{
		Connection: conn, Processes: processes,
		Lifecycle: &Lifecycle{conn: conn, processes: processes},
		Observer:  &Observer{conn: conn, processes: processes, log: log, stats: make(chan struct{}, statsAtOnce)},
		Balloon:   &Balloon{conn: conn},
		Sizes:     &Sizes{conn: conn},
		Secrets:   &Secrets{conn: conn},
		Host:      &Host{conn: conn},
		Hotplug:   &Hotplug{conn: conn, names: fdSets},
		Dumps:     &Dumps{conn: conn},
		Backups:   &Backups{conn: conn},
	}
}
