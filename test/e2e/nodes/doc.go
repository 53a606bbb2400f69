// Package nodes tests what becomes of VMs in a cluster of two nodes when one of these is lost and found
// again, by the real kubectl, kubelet and shim. Its tests end whole nodes, so they run one after the other, in
// a cluster of their own. What leaves a node alive, drains say, is package cluster's matter.
// `make test-cluster SLOW=1` runs them.
package nodes
