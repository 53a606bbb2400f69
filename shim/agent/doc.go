// Package agent talks to the QEMU guest agents of machines: it runs commands in
// guests, and remembers what agents tell of theirs.
//
// It owns the wire to an agent: the connection to the unix socket behind which
// QEMU has the guest's port, its synchronization, bounds of time and size, and
// the decoding of replies. Agents speak JSON, a line a message; see QEMU's QGA
// protocol reference. It leaves to others which machines there are, where their
// sockets lie, and what a result means to CRI.
//
// # The guest is a stranger
//
// What claims to be an agent may answer garbage, without an end, or never. So
// each reply has a bound in bytes and in silence, a connection on which anything
// went wrong is closed and a new one begins with a synchronization, and text
// that is kept is short and printable. One agent is asked by one call at a time;
// a call that waited while another found the agent silent fails with it, so that
// the waits don't add up. Nothing here needs libvirtd.
package agent
