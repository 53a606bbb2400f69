// Package upgrade tests that VMs run on while nodevirt around them is another version: a cluster of an older
// version, built from its revision, is upgraded part by part, and returned to it. `make test-upgrade` runs it.
package upgrade
