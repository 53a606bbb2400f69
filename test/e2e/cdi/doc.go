// Package cdi tests VMs on DataVolumes that the Containerized Data Importer (CDI), unchanged, fills in a
// cluster: `make test-cdi`. Package cluster installs CDI; the tests own the sources of its imports.
package cdi
