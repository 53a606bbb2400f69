// Package manifest checks what users write about virtual machine instances: the
// spec of a VirtualMachineInstance, the template of an object that creates
// instances, and the annotations of both. It owns the fields that only the cluster
// reads (the pod's scheduling, probes and DNS) and adds them to the fields that a
// node supports ([vmspec.Supported]). It leaves the other fields of a kind to the
// kind's package, and defaults to package admission.
package manifest
