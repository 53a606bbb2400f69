// Package replicaset keeps as many VirtualMachineInstances of a template as a
// VirtualMachineInstanceReplicaSet says, and tells on it how many there are. It
// leaves to controller/vmi what becomes of an instance, and to Kubernetes'
// scheduler where it runs.
//
// Never too many are made. A list of instances waits until the cache has all that
// this controller has written. And a new instance's name comes of the set's UID
// and of a number, the first that is free: should a cache be behind in spite of
// that, after a request of which nobody knows whether it came through, or when
// another controller took over, the API server refuses a second one of the name.
package replicaset
