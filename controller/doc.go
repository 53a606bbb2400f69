// Package controller runs the cluster's half of nodevirt: it creates pods for
// kubevirt.io's VirtualMachines and VirtualMachineInstances, and reports in their
// status how the guests are. It owns the manager: caches, leader election, probes
// and metrics. It leaves each kind of object to a subpackage, the choice of a node to
// Kubernetes, and the guest to the node's shim.
package controller
