// Package cluster measures what a user of kubectl waits for, and what it costs, on a cluster of package
// test/cluster: `make bench-cluster`. VMs and ordinary pods take turns in one cluster.
//
// It owns what is measured, and how. It sees what a watch of the API shows, when it shows it.
package cluster
