// Package podstatus tells the API server of what becomes of a node's VMs, as
// conditions of their pods (see [condition]), with the credential of the node's
// kubelet: Kubernetes lets a node write the status of its own pods alone.
//
// It owns what is written, how often, and that nobody ever waits for it: facts
// are handed over by [Writer.Tell], the last ones of each pod are kept, and they
// reach the API server when that answers. Which facts there are is package vm's.
// No VM needs it: without a kubeconfig it does nothing.
package podstatus
