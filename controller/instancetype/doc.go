// Package instancetype owns what a VirtualMachine's instance type and preference
// mean: it finds them, keeps the ones that a VirtualMachine was made with in
// ControllerRevisions, and writes what they say into the spec of an instance. It
// does so as KubeVirt 1.6 does. It leaves to package vmspec which of their fields
// are supported, and to controller/vm when an instance is made.
package instancetype
