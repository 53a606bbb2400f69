// Package deploy holds the files that a node needs beside the shim's binary, as they are installed.
// It owns their text alone; who installs them, and where, is others' matter.
package deploy

import _ "embed"

// QEMUConf is what libvirt's QEMU driver must be told; see the comments in it.
//
//go:embed libvirt/qemu.conf
var QEMUConf string

// LibvirtdConf is what libvirtd itself must be told; see the comments in it.
//
//go:embed libvirt/libvirtd.conf
var LibvirtdConf string
