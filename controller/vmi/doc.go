// Package vmi creates one pod for each VirtualMachineInstance, and reports in the
// instance's status how the guest is. It leaves the pod's content to controller/pod,
// the choice of a node to Kubernetes' scheduler, and the successor of an ended
// instance to controller/vm.
//
// Two guests of one instance never run at a time. Three mechanisms ensure that:
//
//   - The name of an instance's pod contains the instance's UID: the API server
//     refuses a second pod.
//   - The pod has a finalizer. The controller removes it when the container is
//     reported terminated, or when the node is gone or declared out of service. So
//     the object of a pod that was deleted by force stays until its guest has ended.
//   - The instance has a finalizer. The controller removes it when the pod is gone.
//     So the next instance of that name waits; it still looks for earlier pods.
//
// Nor do two guests write one PVC that is not ReadWriteMany: an instance waits while
// another one's pod uses the PVC, and workers take turns, by PVC, from that look until
// the pod is created.
//
// Before a step that cannot be undone, the controller asks the API server, not the
// cache, whether a pod, an instance or a node is really gone.
package vmi
