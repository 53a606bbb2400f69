// Package vm decides for each VirtualMachine whether it should have a running
// VirtualMachineInstance, creates and deletes instances accordingly, and reports
// their state in the VirtualMachine's status. It leaves the instances to
// controller/vmi.
package vm
