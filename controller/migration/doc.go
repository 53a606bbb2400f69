// Package migration moves running instances to other nodes, as
// VirtualMachineInstanceMigrations request it. It makes the target's pod, gives both nodes
// their orders, and decides by their reports which pod has the guest.
//
// It leaves the pods to package vmi, which ends the one without the guest, and the guest's
// hand-over to the nodes: they ensure that only one of them runs it.
//
// # Rules
//
//   - The instance's pod changes only when the target's node reports that it has taken the
//     guest, or when neither node can run the guest any more. The source's report never
//     changes it.
//   - A migration fails only when the target cannot take the guest any more and the source
//     has it, or when the guest has ended.
//   - Each step is written to the migration's status before the next one, and can be
//     repeated: a controller that restarts continues.
//   - A node's report is a stranger's text: it is bounded, and an address in it must be the
//     target pod's, or that of its node.
package migration
