// Package controller is the cluster's half of nodevirt: it makes pods of
// kubevirt.io's VirtualMachines and VirtualMachineInstances, and tells on them
// what becomes of their guests. It owns the manager: caches, leader election,
// probes and metrics. It leaves to its subpackages what an object needs, to
// Kubernetes where a pod runs, and to the node's shim how.
package controller
