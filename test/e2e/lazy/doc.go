// Package lazy holds the end-to-end tests of registry disks that a node fetches while their guests run.
package lazy
