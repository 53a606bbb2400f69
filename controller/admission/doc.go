// Package admission decides which VirtualMachines and VirtualMachineInstances
// the cluster takes: it fills in KubeVirt's defaults, and refuses each field that
// is not supported by its path, all at once. What a machine supports stands in
// [vmspec], which nodes go by too. Who may write what is left to RBAC and to the
// policies in deploy/; certificates are package certs' matter.
package admission
