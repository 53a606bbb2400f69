// Package guest gives users the ways into a running guest: its agent, commands,
// console, display, ports, and the controls of its VM.
//
// It owns the guest agents' clients and what a user may ask of a running VM. The
// life of the VM is package lifecycle's; the wire of a stream is package stream's.
package guest
