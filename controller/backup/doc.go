// Package backup has nodes back up the disks of running VMs to PVCs, as VirtualMachineBackups request
// it, in full or what has changed since the last backup of a VirtualMachineBackupTracker.
//
// It owns both kinds, and the state of changed block tracking of VMs and instances. It leaves the
// copies, and which changes are known, to the guest's node: package backup of the shim.
//
// # Rules
//
//   - A tracker's checkpoint is that of a backup which is complete: it is written after the node says
//     so, and before the backup says so.
//   - A node tracks writes while one QEMU has a disk open. A backup whose checkpoint the node does not
//     know, after a restart or a migration of the VM, is full, and its status says so.
//   - In mode Pull an export's pod serves the disks, which package export makes, from a socket of the
//     node. The backup is complete when it is deleted, or its time is over, as with KubeVirt: but only
//     if clients could read it. Otherwise it fails, and the tracker keeps its checkpoint.
//   - A VM has one backup at a time. The shim refuses a second one.
package backup
