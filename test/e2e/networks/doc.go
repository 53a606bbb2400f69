// Package networks holds the end-to-end tests of machines with several network cards, in a node
// whose pods get their interfaces from Multus.
package networks
