// Package hotplug gives the VMs of instances PVCs, registry disks and network cards while they run, takes them away again, and
// has nodes grow the disks of PVCs that are expanded. It also has nodes set the links of network cards.
//
// A volume of an instance is hot-plugged if it is hotpluggable and the VM's pod does not
// have it. So is a registry disk that the VM has got by its template since it runs, and only reads.
// For each one there is an attachment pod on the VM's node, whose kubelet mounts
// the PVC, or pulls and mounts the image. The VM's node attaches what that pod has mounted, and detaches it before the pod
// is deleted:
//
//	Pending, Bound ──▶ AttachedToNode ──▶ MountedToPod ──▶ Ready
//	 (no pod yet)      (pod on its node)   (pod runs)     (the VM has the disk)
//
//	Ready ──▶ Detaching ──▶ UnMountedFromPod ──▶ no status
//	       (ordered)    (the node has closed it)  (no pod)
//
// The instance's status names the attachment pod before the pod exists. From then on, until
// the status is gone, the instance is a user of the PVC.
//
// While the guest moves to another node, what users add or remove waits. The target's pod has
// attachment pods, too ([Moves]), and its node mounts the volumes before the guest comes. Then the
// instance names the target's attachment pods, and the source's are deleted once the source's VM has
// ended. If the guest stays, the target's are deleted.
//
// A network card of an instance is plugged if it has the binding bridge, on a network of Multus, and the VM's pod
// was not created with it. Its attachment pod asks Multus for that network, and the VM's node connects the guest to
// the interface in that pod. The VM's pod notes the cards that the node has confirmed, and the instance's status
// shows those. A card that the spec calls absent is detached before its attachment pod goes. So is one with which the
// VM has started: its pod keeps the interface, and notes that the VM has lost the card. The target's pod of a
// migration has the networks of all cards that the VM has: they are its own then.
//
// The package owns attachment pods and the status of hot-plugged volumes. It leaves the
// pods' content to controller/pod, the choice of volumes to users and to controller/vm, and
// the use of PVCs by other instances to controller/vmi.
package hotplug
