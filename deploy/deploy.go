// Package deploy has the files that a node needs beside the shim's binary, as they are installed. It
// leaves installing them to its users.
package deploy

import _ "embed"

// QEMUConf is the configuration of libvirt's QEMU driver. Its comments explain each setting.
//
//go:embed libvirt/qemu.conf
var QEMUConf string

// LibvirtdConf is the configuration of libvirtd. Its comments explain each setting.
//
//go:embed libvirt/libvirtd.conf
var LibvirtdConf string

// LibvirtGuests are the settings of libvirt-guests.service. Its comments explain each setting.
//
//go:embed libvirt/libvirt-guests
var LibvirtGuests string

// TgtdUnit is the systemd unit of tgtd. Its comments explain each setting.
//
//go:embed systemd/nodevirt-tgtd.service
var TgtdUnit string

// ShimUnit is the systemd unit of the shim. Its comments explain each setting.
//
//go:embed systemd/nodevirt-shim.service
var ShimUnit string

// ScopeDropIn is the drop-in of the scopes of VMs. Its comments explain the settings.
//
//go:embed systemd/nodevirt-.scope.d/nodevirt.conf
var ScopeDropIn string

// LibvirtdDropIn is the drop-in of libvirtd's unit.
//
//go:embed systemd/libvirtd.service.d/nodevirt.conf
var LibvirtdDropIn string

// SocketDropIn is the drop-in of the unit of libvirtd's read-only socket.
//
//go:embed systemd/libvirtd-ro.socket.d/nodevirt.conf
var SocketDropIn string

// ShimConfig is the shim's config file with all defaults.
//
//go:embed nodevirt-shim.toml
var ShimConfig string
