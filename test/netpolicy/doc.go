// Package netpolicy enforces NetworkPolicies on a node of the tests' cluster, as the CNI plug-in of a
// real cluster does: it watches the API server, and keeps an nftables table in the node's network
// namespace. The table drops what policies do not allow to and from the node's pods.
//
// The package owns the table and nothing else. The node's bridge must pass frames to netfilter
// (bridge-nf-call-iptables), so that the table sees packets between pods of the same node.
//
// As the API defines it, a policy does not limit connections that exist already, pods in their node's network,
// or what a pod exchanges with its own node.
package netpolicy
