// Package vmi makes one pod of each VirtualMachineInstance, and tells on the
// instance what becomes of it. It leaves the pod's content to controller/pod,
// where it runs to Kubernetes' scheduler, and whether a new instance follows an
// ended one to controller/vm.
//
// Never two guests of one instance run at a time. Three things hold that:
//
//   - An instance's pod has a name with the instance's UID in it: the API server
//     refuses a second one.
//   - The pod has a finalizer, which is taken off when the container is reported
//     terminated, or when the node is gone or declared out of service. So a pod
//     that was deleted by force stays an object until its guest has ended.
//   - The instance has a finalizer, which is taken off when the pod is gone. So
//     does the next instance of that name wait, and it looks for pods of those
//     before it all the same.
//
// What is about to be irreversible is asked of the API server, not of the cache:
// whether a pod, an instance or a node is really gone.
package vmi
