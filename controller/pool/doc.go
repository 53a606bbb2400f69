// Package pool keeps as many VirtualMachines of a template as a VirtualMachinePool
// requests, brings them up to date with the template, replaces those that cannot
// start, and reports their number in the pool's status. It leaves each VM to
// controller/vm.
//
// A pool's VMs are those that it owns. They are called NAME-INDEX, and a new one gets
// the lowest index that is free. A VM that is being deleted keeps its place until it
// is gone, so that its successor has its name. So the controller creates none twice:
// if the cache is behind, after a request without an answer or a change of leader,
// the API server refuses a second VM of that name.
package pool
