// Package rpc calls the phases of libvirt's migration at one libvirtd, by libvirt's own
// protocol on libvirtd's unix socket.
//
// It owns the encoding, and the order of calls on a connection. It leaves the phases'
// order and their failures to package handover.
//
// libvirt's library has no functions for single phases: a client of the library either
// connects to both libvirtds, or lets the source's libvirtd connect to the target's.
// Either needs a libvirt socket that reaches another node, which makes root of one node
// root of the other. With single calls, each shim calls the libvirtd on its node,
// and the shims exchange libvirt's cookies.
//
// The protocol is the stable one between libvirt's own client and libvirtd (program
// 0x20008086, version 1): libvirt supports old clients with new daemons. See
// src/remote/remote_protocol.x and src/rpc/virnetprotocol.x of libvirt.
package rpc
