// Package needs decides which tests `make unit` leaves out: those that need root, a network, or programs
// such as QEMU, containerd and kube-apiserver. Every other test belongs to `make unit` by default.
//
// Helpers that start real parts, such as those of packages node and apiserver, call this package for
// their callers. Any other run than `make unit` leaves nothing out: a test whose parts are missing
// fails there.
package needs

import (
	"fmt"
	"os"
	"testing"
)

// variable is set by make unit alone.
const variable = "NODEVIRT_UNIT"

// Parts says what a test needs. In make unit the test ends here.
func Parts(t testing.TB, what string) {
	t.Helper()
	if Unit() {
		t.Skip("left out of make unit, needs " + what)
	}
}

// PartsOfAll says what all tests of a package need, for its TestMain. In make unit the process ends here.
func PartsOfAll(what string) {
	if Unit() {
		fmt.Println("left out of make unit, needs " + what)
		os.Exit(0)
	}
}

// Unit reports whether this is make unit, for a TestMain that prepares what only some tests need.
func Unit() bool { return os.Getenv(variable) != "" }
