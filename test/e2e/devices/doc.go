// Package devices tests the way of a node's devices to a VM in a cluster: `make test-cluster SLOW=1`.
//
// A device plug-in and a DRA driver of the tests' own run on the node, the latter by Kubernetes' library for
// drivers. The kubelet, the scheduler and the shim are real. No machine of the tests has VFIO: a folder
// stands for the PCI devices in the node's /sys, and the VM fails after libvirt has accepted its domain.
package devices
