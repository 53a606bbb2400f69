// Package sandbox follows the pod sandboxes of VMs.
//
// It owns the records of sandboxes, including those that containerd has been
// asked for and has not answered, and what the shim asks containerd about them.
// Making and removing sandboxes is containerd's work; the VMs in them are
// package lifecycle's.
package sandbox
