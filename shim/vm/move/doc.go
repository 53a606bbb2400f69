// Package move moves running VMs between this node and others: it carries out the orders
// of package order.
//
// It owns what a node knows of each VM's migration, the tasks that work on it, the check
// of what can move, and the recovery after a restart of the shim. It leaves the decision
// which node runs a guest to package handover, libvirt and the streams to package migrate,
// and the VM's parts and its record to package lifecycle.
//
// On the source, a migration is a task beside a VM that runs. On the target, the start
// of a pod with the annotation of package order makes all but the domain, and its
// container then waits for the guest:
//
//	start ──▶ waits ──▶ receives ──▶ taken: an ordinary VM
//	            │           │
//	            └───────────┴──────▶ refused: the container exits
//
// Disks that the guest has got since it runs come with it: the source describes them, and the
// target has the attachment pod's volumes. The target's QEMU starts with them. From then on, they
// are detached as on the source.
//
// # Locks
//
// An order takes the VM's orders, and then possibly the VM's turn in package table. A step
// of package handover takes that package's turn, and then possibly the VM's. Nothing that
// has a VM's turn calls this package, but for questions that read memory alone.
package move
