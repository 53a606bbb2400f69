// Package vm decides for each VirtualMachine whether it should have a running
// VirtualMachineInstance, makes and removes instances accordingly, and tells on
// the VirtualMachine how they fare. It leaves to controller/vmi what becomes of
// an instance.
package vm
