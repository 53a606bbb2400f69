// Package agent talks to the QEMU guest agents of VMs: it runs commands in guests,
// and caches what agents report about their guests.
//
// It owns the connection to an agent: the unix socket that QEMU connects to the guest's port, its
// synchronization, bounds of time and size, and the decoding of replies. Agents
// speak JSON, one message a line; see QEMU's QGA protocol reference. It leaves to
// package vm which VMs exist, where their sockets are, and what a result means to CRI.
//
// # Guests are not trusted
//
// A process in the guest may pose as the agent and answer garbage, endlessly, or
// never. So each reply is bounded in bytes and in silence, any failure closes the
// connection, each new connection begins with a synchronization, and text that is
// kept is short and printable. Calls to one agent take turns. A call that waits
// while another finds the agent silent fails with it, so that the waits do not add
// up. The package does not need libvirtd.
package agent
