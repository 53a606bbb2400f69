// Package restore brings VMs back to snapshots, as VirtualMachineRestores request it: it
// creates PVCs from VolumeSnapshots, and replaces the VM's spec by the one in the snapshot's
// content, or creates the VM.
//
// It leaves the contents of PVCs to CSI drivers, and the start of the VM to its user.
//
// # Rules
//
//   - The VM does not run meanwhile: package vm starts none with a restore in progress.
//   - The names of the PVCs are in the restore's status before the first PVC exists. Each
//     step can be repeated.
//   - The VM's annotation with the restore's UID says that its spec is restored. Only then
//     disks that it does not need any more are deleted, and only its own.
package restore
