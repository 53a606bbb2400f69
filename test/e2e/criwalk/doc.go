// Package criwalk walks through every RPC of CRI with a VM container and with an ordinary one beside
// it, from state to state, and holds the answers against each other: codes, the fields that are
// filled, the order of events.
//
// It owns the checks that a kubelet can't distinguish a VM container from an ordinary one. Where both
// must differ,
// since a machine is no process, the table of cases says why, and testdata has each answer as it is
// worded. What VM containers do is package e2e's, what must be refused of pods and images badinput's;
// all that is not a VM's goes to critest.
package criwalk
