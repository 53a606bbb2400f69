// Package snapshot takes snapshots of VMs, as VirtualMachineSnapshots request them: it keeps
// a VM's spec in a VirtualMachineSnapshotContent, and has CSI drivers take snapshots of the
// VM's PVCs, all within one freeze of the guest's file systems.
//
// It leaves the snapshots of PVCs to their drivers, and the freeze to the guest's node.
//
// # Rules
//
//   - A guest's freeze is short and extended while it is needed: the node thaws the guest
//     soon after the controller dies.
//   - A snapshot of several PVCs comes from one freeze, or the snapshot says that it does
//     not: the node knows whether the guest has been frozen all the time.
//   - A content has a creation time only if all of its VolumeSnapshots do.
package snapshot
