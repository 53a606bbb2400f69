// Package cli tests the program nodevirt as a user has it: built, in a node
// with all its real parts.
package cli
