// Package hostdevices tests the way of a device of the node from a manifest to a guest: admission
// accepts the manifest, the controller makes a pod, a node finds what the kubelet hands to
// the pod's container, and libvirt gets the domain. No machine of the tests has VFIO, so a
// folder stands for the node's file system.
package hostdevices
