// Package attack measures what a neighbour's work takes while a tenant exceeds the bounds of what it can make grow or wait.
//
// It owns the measuring, the comparison with the normal time of the same run, and the list of which bounds which suite exceeds.
// It leaves the attacks to the suites: test/e2e has those on a node, test/e2e/admission those on the controller.
package attack
