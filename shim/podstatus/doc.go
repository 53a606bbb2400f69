// Package podstatus writes the state of a node's VMs to the API server, as
// conditions of their pods (see [condition]). It uses the credential of the node's
// kubelet, which may write the status of the node's own pods only.
//
// It owns what is written and how often. Callers never wait for the API server:
// [Writer.Set] keeps the latest facts of each pod, and [Writer.Run] writes them
// once the API server answers. It leaves the facts themselves to package vm. VMs
// run without it: without a kubeconfig it does nothing.
package podstatus
