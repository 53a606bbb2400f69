// Package clone copies VMs, as VirtualMachineClones request it: it takes a
// VirtualMachineSnapshot of the source, and restores it to a VM of another name, which patches
// give its own identity.
//
// It leaves the snapshot to package snapshot, and the PVCs and the VM to package restore.
//
// # Rules
//
//   - A clone changes no VM that exists.
//   - The names of its snapshot and of its restore are in its status before these exist. They
//     come of the clone's UID, so that each step can be repeated.
//   - The snapshot and the restore stay until the PVCs are bound, and go if the clone fails.
package clone
