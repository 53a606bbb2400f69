// Package compat makes the target's domain compatible with the source's.
//
// QEMU can only read the guest's state into the same machine: the same version of the
// board, the same CPU, and each device at the same PCI address. Both nodes describe the
// domain from the VM's own spec. libvirt then chooses these three, and a newer libvirt,
// or a device that was added meanwhile, can change its choice.
//
// A hostile source must not choose more than that. Its domain's XML could name any file
// of the target's node, which libvirtd opens as root. So the target takes a [Shape]: plain
// data, of which each value is checked against a pattern or a list, and which only changes
// devices that the target's own domain has. The exceptions are controllers without a
// connection to the node, and what the guest has got of the vCPUs and the RAM that the
// target's pod is for.
package compat
