// Package cluster tests VMs where a real kubelet, scheduler and API server meet them: `make test-cluster`.
//
// It owns what only shows in a cluster; what crictl can see is package e2e's. Tests share one cluster,
// whose kubelet rotates logs early. Most also share one guest, which runs the guest agent and backs the
// Service vm. Those that disturb the node run first, one by one; the others at once. They are behind the
// build tag "cluster", for Kubernetes takes minutes to build.
package cluster
