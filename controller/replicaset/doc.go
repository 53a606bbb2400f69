// Package replicaset keeps as many VirtualMachineInstances of a template as a
// VirtualMachineInstanceReplicaSet requests, and reports their number in its status.
// It leaves each instance to controller/vmi, and the choice of its node to
// Kubernetes' scheduler.
//
// The controller never creates too many. It lists instances only when the cache has
// all its own writes. A new instance's name contains the set's UID and the first free
// number. So if the cache is behind all the same, after a request without an answer
// or a change of leader, the API server refuses a second instance of that name.
package replicaset
