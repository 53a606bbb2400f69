// Package pod translates a VirtualMachineInstance into the pod that runs it. It
// is pure: the same instance makes the same pod, name included, so that two pods
// of one instance can't exist. It leaves to others who creates the pod, and what
// a node makes of it: that is shim/vmspec, whose words it uses.
package pod
