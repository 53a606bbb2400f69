// Package nodes tests what happens to VMs in a cluster of two nodes when one node is lost and comes back, when
// it is drained, and when a part of a migration fails, with the real kubectl, kubelet and shim. Its tests
// change whole nodes, so they run one after the other, in a separate cluster. Package cluster tests what leaves
// a node as it is. `make test-cluster SLOW=1` runs them, and `make test-migrations` runs those of migrations for
// longer.
package nodes
