// Package nodes tests what happens to VMs in a cluster of two nodes when one node is lost and comes back, with
// the real kubectl, kubelet and shim. Its tests end whole nodes, so they run one after the other, in a
// separate cluster. Package cluster tests what leaves a node alive, such as drains. `make test-cluster SLOW=1`
// runs them.
package nodes
