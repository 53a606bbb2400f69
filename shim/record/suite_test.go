package record_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestSuite checks that records on disk are what the fake ones are.
func TestSuite(t *testing.T) {
	s, _ := open(t)
	vmtest.TestRecords(t, s, s)
}
