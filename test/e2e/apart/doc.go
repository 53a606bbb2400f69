// Package apart holds the end-to-end tests of disks that one node exports and another one's VMs use.
package apart
