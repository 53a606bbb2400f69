// Package migrate moves a running VM from this node's libvirtd to another node's.
//
// It owns the two ends as package handover needs them: [Source] and [Target] join
// libvirt's phases (package rpc), the streams (package link) and what the target takes
// from the source's domain (package compat). It leaves to its callers the VM's files,
// network and cgroup, the records' folder, and how the two shims learn each other's
// address and fingerprint.
//
// libvirtd and QEMU see unix sockets only. On the source, libvirtd connects to sockets
// that the shim relays; on the target, QEMU listens on sockets to which the shim relays.
// libvirtd waits for minutes for a stream that hangs, also after an abort. So the source
// ends its relays first.
package migrate
