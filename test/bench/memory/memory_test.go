package memory_test

import (
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/bench/memory"
)

func TestPSS(t *testing.T) {
	if pss, err := memory.PSS(os.Getpid()); err != nil || pss <= 0 {
		t.Errorf("this process takes %f MiB: %v", pss, err)
	}
	if _, err := memory.Mebibytes(os.Getpid(), "status", "VmNone"); err == nil {
		t.Error("a field that is not there has a value")
	}
}
