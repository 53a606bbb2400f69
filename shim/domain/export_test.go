package domain

import (
	"os"
	"testing"
)

// StartDriver starts a libvirtd, and a driver of it, that end with the test.
func StartDriver(t *testing.T) *Driver {
	t.Helper()
	startLibvirtd(t)
	return startDriver(t)
}

// NewGuest makes a machine, and the files that it is started with.
func NewGuest(t *testing.T) (Description, map[string][]*os.File) {
	t.Helper()
	g := newGuest(t)
	return g.Description, g.files
}
