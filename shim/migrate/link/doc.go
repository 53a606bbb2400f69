// Package link carries a migration between two shims: its messages, the guest's memory
// and its disks.
//
// It owns the one-time certificates, the target's listener, the source's connections,
// and the relays from and to the unix sockets that libvirt and QEMU use. It leaves the
// messages to package handover, and the transport, such as a TCP connection from a pod's
// network, to its callers.
//
// # Authentication
//
// Each end makes a key and a certificate for one migration, and keeps both in memory.
// The ends learn each other's fingerprint through the door that the controller already
// has, not on this link. Each accepts TLS 1.3 with exactly that certificate, and no
// resumption. So there is no authority and no Secret, a certificate is of no use for
// another migration, and one that leaks later opens nothing.
//
// # Bounds
//
// A stranger can reach the listener. Its connections end before their handshake does, or
// with it; few of them are open at once, each for seconds. The peer's connections are
// bounded, too, and all of them end with the listener's context: its deadline bounds an
// endless stream. Each kind of stream is a connection, so that a message never waits for
// memory.
package link
