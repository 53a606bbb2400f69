// Package migration tests live migration between two nodes, by the orders that the controller gives.
//
// Its nodes have a libvirtd each, and a cable between them. A cluster's controller is not part of it.
package migration
