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

// TgtdUnit is the systemd unit of tgtd. Its comments explain each setting.
//
//go:embed systemd/nodevirt-tgtd.service
var TgtdUnit string
